"""The HTTP API of the page: state and columns, labels and tags, search, lists, fine-tuning, exports."""

import asyncio
import io
from dataclasses import asdict
from typing import Any, cast, get_args

import numpy as np

from csml.data.bit_depth import reading_of
from csml.data.decode import DecodeError, open_picture
from csml.errors import CsmlError
from csml.evaluation.selection import By
from csml.explorer.background import BackgroundValue
from csml.explorer.exports import FORMATS, rows_of
from csml.explorer.request_fields import (
    LARGEST_PICTURE,
    LONGEST_SEARCH,
    MOST_RESULTS,
    Fields,
    query_number,
    read_body,
)
from csml.explorer.review_lists import KINDS, ReviewLists, density_of
from csml.explorer.store import Action
from csml.explorer.training import Training
from csml.explorer.workbench import Workbench
from csml.extras import extra

with extra("explore", "csml explore"):
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

_THIN = 5
"""A class with fewer labels has too few."""


class Api:
    """The request handlers, as methods that starlette calls; slow ones run in threads."""

    def __init__(self, workbench: Workbench, training: Training, start: str) -> None:
        self.bench, self.training = workbench, training
        self.cleaning = ReviewLists(workbench)
        self._density: tuple[str, BackgroundValue[np.ndarray]] | None = None
        self.count = len(workbench.names)
        self._start = start

    def routes(self) -> list[Route]:
        """All routes, under /api."""
        get = {
            "summary": self.summary, "state": self.state, "points": self.points, "column/{name}": self.column,
            "queue": self.queue, "find": self.find, "history": self.history, "clean/{kind}": self.clean,
        }  # fmt: skip
        post = {
            "describe": self.describe, "similar": self.similar, "search": self.search, "label": self.label,
            "tag": self.tag, "undo": self.undo, "redo": self.redo, "select": self.select, "train": self.train,
            "cancel": self.cancel, "suggest": self.suggest, "export": self.export,
        }  # fmt: skip
        routes = [Route(f"/api/{path}", answer) for path, answer in get.items()]
        return routes + [Route(f"/api/{path}", answer, methods=["POST"]) for path, answer in post.items()]

    def summary(self, request: Request) -> Response:
        """Data that never changes while the page is open."""
        columns = [
            {"title": printable(one.title), "names": None if one.names is None else [printable(n) for n in one.names]}
            for one in self.bench.columns
        ]
        return JSONResponse(
            {
                "name": printable(self.bench.run.name),
                "count": self.count,
                "columns": columns,
                "command": printable(self.training.command()),
                "file": printable(str(self.bench.store.csv_file)),
                "thin": _THIN,
                "start": self._start,
            }
        )

    def state(self, request: Request) -> Response:
        """Data that may change at any time; the page polls it about every second."""
        bench = self.bench
        said, suggested, estimate = bench.said(), bench.suggestions(), bench.estimate()
        tags: dict[str, int] = {}
        for values in bench.store.tags().values():
            for tag in values:
                tags[tag] = tags.get(tag, 0) + 1
        history = bench.store.history(1000)
        holding = next((one for one in history if not one.undone), None)
        again = [one for one in history if one.undone and not one.for_good and (holding is None or one.id > holding.id)]
        layout, job = bench.view.layout, asdict(self.training.job)
        job |= {"result": printable(job["result"]), "lines": [printable(line) for line in job["lines"]]}
        return JSONResponse(
            {
                "version": said.version,
                "words": [printable(word) for word in said.words],
                "counts": {printable(word): count for word, count in said.counts().items()},
                "tags": {printable(tag): count for tag, count in sorted(tags.items())},
                "estimate": None if estimate is None else asdict(estimate),
                "undo": None if holding is None else printable(holding.about),
                "redo": printable(again[-1].about) if again else None,
                "map": {
                    "version": f"{bench.view.key}/{layout.version}",
                    "finished": layout.finished,
                    "settings": layout.settings,
                },
                "suggestions": None
                if suggested is None
                else {
                    "version": f"{bench.view.key}/{id(suggested)}",
                    "classes": [printable(name) for name in suggested.classes],
                    "source": suggested.source,
                    "votes": bench.prefers_votes,
                    "classifier": bench.view.class_probabilities is not None,
                },
                "job": job,
            }
        )

    def points(self, request: Request) -> Response:
        """float32, all x and then all y."""
        return _binary(np.ascontiguousarray(self.bench.view.layout.points.T, np.float32))

    def column(self, request: Request) -> Response:
        """int32 or float32 for each image; 204 while it is not ready."""
        values = self._column(request.path_params["name"])
        return Response(status_code=204) if values is None else _binary(values)

    def _column(self, name: str) -> np.ndarray | None:
        bench = self.bench
        if name == "label":
            return bench.said().codes
        if name == "tag":
            return self._tags()
        if name == "cluster":
            return bench.view.layout.clusters.astype(np.int32)
        if name == "density":
            if self._density is None or self._density[0] != bench.view.key:
                view = bench.view
                self._density = (view.key, BackgroundValue(lambda note: density_of(view)))
            return self._density[1].get()
        if name in ("suggested", "probability", "entropy"):
            found = bench.suggestions()
            if found is None:
                return None
            return {"suggested": found.labels, "probability": found.probabilities, "entropy": found.entropies}[name]
        if name.isascii() and name.isdecimal() and int(name) < len(bench.columns):
            return bench.columns[int(name)].values
        raise HTTPException(404)

    def _tags(self) -> np.ndarray:
        """The first tag of each image, as an index into the sorted tags; −1 without one."""
        tagged = self.bench.store.tags()
        place = {tag: code for code, tag in enumerate(sorted({tag for tags in tagged.values() for tag in tags}))}
        codes = np.full(self.count, -1, np.int32)
        for name, tags in tagged.items():
            if (id := self.bench.ids.get(name)) is not None:
                codes[id] = place[tags[0]]
        return codes

    async def describe(self, request: Request) -> Response:
        """Names and tags of some images."""
        ids = (await Fields.of(request, self.count)).ids()
        if len(ids) > MOST_RESULTS:
            raise HTTPException(400, f"ids: at most {MOST_RESULTS}.")
        tags = await asyncio.to_thread(self.bench.store.tags)
        names = [self.bench.names[id] for id in ids]
        return JSONResponse([{"name": printable(n), "tags": [printable(t) for t in tags.get(n, ())]} for n in names])

    def queue(self, request: Request) -> Response:
        """Images to label next, and why."""
        by = request.query_params.get("by", "both")
        if by not in get_args(By):
            raise HTTPException(400, f"by: one of {', '.join(get_args(By))}.")
        ids, reasons = self.bench.next_to_label(query_number(request, "n", 48, MOST_RESULTS), cast(By, by))
        return JSONResponse({"ids": ids, "notes": reasons})

    def find(self, request: Request) -> Response:
        """Search by file name."""
        text = request.query_params.get("text", "")
        if not text or len(text) > LONGEST_SEARCH:
            raise HTTPException(400, f"text: 1 to {LONGEST_SEARCH} characters.")
        return JSONResponse({"ids": self.bench.find(text, MOST_RESULTS)})

    async def similar(self, request: Request) -> Response:
        """Images similar to some and dissimilar to others."""
        fields = await Fields.of(request, self.count)
        positive, negative, uploads = fields.ids("positive"), fields.ids("negative"), fields.numbers("uploads")
        pairs = await asyncio.to_thread(self.bench.similar, positive, negative, uploads, 200)
        return JSONResponse({"ids": [id for id, _ in pairs], "similarities": [value for _, value in pairs]})

    async def search(self, request: Request) -> Response:
        """Images similar to an uploaded picture; `upload` identifies the picture in `similar`."""
        content = await read_body(request, LARGEST_PICTURE)
        reading = reading_of(self.bench.view.opened.config)
        try:
            number = await asyncio.to_thread(lambda: self.bench.upload(open_picture(io.BytesIO(content), reading)))
        except DecodeError as error:
            raise HTTPException(400, "This file is not a readable picture.") from error
        pairs = await asyncio.to_thread(self.bench.similar, [], [], [number], 200)
        return JSONResponse(
            {"upload": number, "ids": [id for id, _ in pairs], "similarities": [value for _, value in pairs]}
        )

    async def label(self, request: Request) -> Response:
        """Label images; 409 if some have another label and the request is to ask."""
        fields = await Fields.of(request, self.count)
        labels, existing = fields.labels(), fields.choice("existing", ("ask", "replace", "keep"))
        changed, others = await asyncio.to_thread(self.bench.label, labels, existing)
        answer = {"changed": changed, "others": {printable(word): count for word, count in others.items()}}
        return JSONResponse(answer, 409 if existing == "ask" and others else 200)

    async def tag(self, request: Request) -> Response:
        fields = await Fields.of(request, self.count)
        word, on = fields.word("tag"), fields.flag("on", True)
        return JSONResponse({"changed": await asyncio.to_thread(self.bench.tag, fields.ids(least=1), word, on)})

    def undo(self, request: Request) -> Response:
        return self._turned(self.bench.store.undo())

    def redo(self, request: Request) -> Response:
        return self._turned(self.bench.store.redo())

    def _turned(self, action: Action | None) -> Response:
        """What was undone or done again, and the image if it was a single one."""
        if action is None:
            return JSONResponse({"about": None, "id": None})
        ids = [self.bench.ids.get(name) for name in action.names[:2]]
        return JSONResponse({"about": printable(action.about), "id": ids[0] if len(ids) == 1 else None})

    def history(self, request: Request) -> Response:
        """The history of actions with user and time, the latest first."""
        actions = self.bench.store.history(200)
        return JSONResponse(
            [{**asdict(one), "about": printable(one.about), "who": printable(one.who)} for one in actions]
        )

    async def select(self, request: Request) -> Response:
        """Store the selection, for `csml.explore(run).selection`."""
        self.bench.selection = (await Fields.of(request, self.count)).ids()
        return JSONResponse({})

    def train(self, request: Request) -> Response:
        try:
            self.training.start()
        except CsmlError as error:
            return PlainTextResponse(str(error), 409)
        return JSONResponse({})

    def cancel(self, request: Request) -> Response:
        self.training.cancel()
        return JSONResponse({})

    async def suggest(self, request: Request) -> Response:
        """Choose the source of label suggestions: the classifier, or kNN votes of the labels."""
        self.bench.prefers_votes = (await Fields.of(request, self.count)).flag("votes", False)
        return JSONResponse({})

    def clean(self, request: Request) -> Response:
        """One of the lists of images that may not belong."""
        kind, text = request.path_params["kind"], request.query_params.get("similarity", "0.95")
        try:
            similarity = float(text)
        except ValueError as error:
            raise HTTPException(400, "similarity: a number from 0.5 to 1.") from error
        if kind not in KINDS or not 0.5 <= similarity <= 1:
            raise HTTPException(400 if kind in KINDS else 404)
        answer = self.cleaning.list(kind, similarity)
        found: dict[str, Any] | None = None if answer.found is None else asdict(answer.found)
        if found is not None:
            found["notes"] = [printable(note) for note in found["notes"]]
            found["suggested"] = {str(id): printable(word) for id, word in found["suggested"].items()}
        return JSONResponse({"found": found, "done": answer.done, "problem": answer.problem})

    async def export(self, request: Request) -> Response:
        """A file of `ids`, or by default of all images with a label or a tag; also updates labels.csv."""
        fields = await Fields.of(request, self.count)
        await asyncio.to_thread(self.bench.store.save)
        name, write = FORMATS[fields.choice("format", tuple(FORMATS))]
        ids = fields.ids() if "ids" in fields else None
        text = await asyncio.to_thread(lambda: write(list(rows_of(self.bench, self._marked() if ids is None else ids))))
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        content = text.encode("utf-8", "surrogateescape")
        return Response(content, media_type="application/octet-stream", headers=headers)

    def _marked(self) -> list[int]:
        tagged = {id for name in self.bench.store.tags() if (id := self.bench.ids.get(name)) is not None}
        return sorted(tagged | set(np.flatnonzero(self.bench.said().codes >= 0).tolist()))


def printable(name: str) -> str:
    """A file name as valid Unicode, for JSON."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _binary(values: np.ndarray) -> Response:
    return Response(values.tobytes(), media_type="application/octet-stream")
