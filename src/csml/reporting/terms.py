"""The terms of a report in plain words: shown when a mouse rests on one, and listed at the end."""

import re

TERMS: dict[str, str] = {
    "k-NN": "Each test picture gets the class that most of its k most similar training pictures have (20-NN: the "
    "20 most similar). Nothing is trained for it: it measures the features themselves.",
    "linear": "A linear classifier is trained on the features, which stay as they are, with all labels.",
    "few labels": "A classifier that learnt from the number of labels in brackets.",
    "stage": "A depth of the network; 4 is its end.",
    "raw pixels": "The same vote with the pixels themselves as features: what the network has to beat.",
    "untrained network": "The same network before it learnt anything.",
    "starting weights": "The network as it was before this training.",
    "largest class": "Always saying the most frequent class.",
    "anchor": "The picture that is asked about; its neighbours are those that the network finds most similar.",
    "neighbour set Ω": "For each training picture, the pictures that pre-training treats as the same thing.",
    "purity": "Share of the neighbours that have the picture's own class. Labels are used only to measure it.",
    "turnover": "Share of the neighbours that changed since the search before.",
    "loss": "What training makes smaller; chance is what an untrained network gets.",
    "spread": "How different the features of different pictures are; towards 0 all look the same to the network.",
    "contrastive accuracy": "Share of pictures that are nearer to another view of themselves than to all others.",
    "confusions": "How often pictures of one class (row) were taken for another (column).",
    "t-SNE": "A method that places pictures on a plane so that similar ones are near each other.",
    "cross-validation": "Some labels at a time are hidden and guessed by a classifier that learnt from the others.",
    "AP": "Average precision of a detector: 100 if every object is found with the right box and nothing else is.",
}


def explained(text: str) -> str | None:
    """What a heading or the name of a column means, where a term stands in it."""
    if re.match(r"\d+-NN", text):
        return TERMS["k-NN"]
    found = [meaning for term, meaning in TERMS.items() if term.lower() in text.lower()]
    return found[0] if found else None


def occurs(term: str, page: str) -> bool:
    """Whether a page in HTML speaks of a term."""
    text = re.sub(r"<[^>]*>", " ", page)
    wanted = r"\d-NN" if term == "k-NN" else rf"\b{re.escape(term)}"
    return re.search(wanted, text, 0 if term == "AP" else re.IGNORECASE) is not None
