"""The terms of a report in plain words: shown as tooltips, and listed at the end."""

import re

TERMS: dict[str, str] = {
    "k-NN": "Each test picture gets the most frequent class of its k most similar training pictures (20-NN: the "
    "20 most similar). Nothing is trained: it measures the features themselves.",
    "linear": "A linear classifier is trained with all labels on the features, which do not change.",
    "few labels": "A classifier trained on the number of labels in brackets.",
    "stage": "A depth of the network; 4 is its end.",
    "raw pixels": "The same vote with the pixels themselves as features: a baseline for the network.",
    "untrained network": "The same network before any training: a baseline.",
    "starting weights": "The network before this training.",
    "largest class": "Always predicting the most frequent class: a baseline.",
    "anchor": "The picture in question; its neighbours are those that the network finds most similar.",
    "neighbour set Ω": "For each training picture, the pictures that pre-training treats as showing the same thing.",
    "purity": "Share of the neighbours with the same class as the picture. Labels are used only to measure it.",
    "turnover": "Share of the neighbours that changed since the previous search.",
    "loss": "The quantity that training minimises; chance is the loss of an untrained network.",
    "spread": "How different the features of different pictures are; near 0 all pictures look the same to the network.",
    "contrastive accuracy": "Share of pictures that are nearer to another view of themselves than to all others.",
    "confusions": "How often pictures of one class (row) were taken for another (column).",
    "t-SNE": "A method that places pictures on a plane so that similar ones are near each other.",
    "cross-validation": "Some labels at a time are hidden and guessed by a classifier trained on the others.",
    "AP": "Average precision of a detector: 100 if every object is found with the right box and nothing else is.",
}


def meaning_of(text: str) -> str | None:
    """The meaning of a term in a heading or column name; None if there is none."""
    return next((meaning for term, meaning in TERMS.items() if _mentions(text, term)), None)


def occurs(term: str, page: str) -> bool:
    """Whether an HTML page contains a term."""
    return _mentions(re.sub(r"<[^>]*>", " ", page), term)


def _mentions(text: str, term: str) -> bool:
    wanted = r"\d-NN" if term == "k-NN" else rf"\b{re.escape(term)}"
    return re.search(wanted, text, 0 if term == "AP" else re.IGNORECASE) is not None
