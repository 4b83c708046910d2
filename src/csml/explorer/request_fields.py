"""Validation of requests: size limits, and the type of every field."""

import json
from collections.abc import Sequence
from typing import Any

from csml.extras import extra

with extra("explore", "csml explore"):
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

LARGEST_PICTURE = 64 * 2**20
LARGEST_JSON = 32 * 2**20
LONGEST_LABEL = 200
LONGEST_SEARCH = 500
MOST_RESULTS = 2000


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request; raises if it is too large."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise HTTPException(413, "This is too large.")
        chunks.append(chunk)
    return b"".join(chunks)


class Fields:
    """The fields of a JSON body, read by name and type; invalid fields are refused.

    Args:
        values: the body.
        images: number of images, the limit of ids.
    """

    def __init__(self, values: Any, images: int) -> None:
        if not isinstance(values, dict):
            raise HTTPException(400, "Send a JSON object.")
        self._values, self._images = values, images

    @classmethod
    async def of(cls, request: Request, images: int) -> "Fields":
        """Read the fields from a request, which must declare JSON: a form on another site cannot."""
        if request.headers.get("content-type", "").split(";")[0] != "application/json":
            raise HTTPException(415, "Send JSON.")
        try:
            return cls(json.loads(await read_body(request, LARGEST_JSON)), images)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, "This is not JSON.") from error

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def ids(self, name: str = "ids", least: int = 0) -> list[int]:
        """Ids of images, without duplicates."""
        values = self._values.get(name, [])
        if (
            not isinstance(values, list)
            or len(values) > self._images
            or not all(self._is_id(value) for value in values)
        ):
            raise HTTPException(400, f"{name}: send a list of image numbers.")
        found = list(dict.fromkeys(values))
        if len(found) < least:
            raise HTTPException(400, f"{name}: send at least {least}.")
        return found

    def labels(self) -> dict[int, str | None]:
        """Either `labels`, a label for each id, or `ids` and one `label`; null removes a label."""
        if "labels" not in self._values:
            return dict.fromkeys(self.ids(least=1), self._word("label", self._values.get("label", "")))
        pairs = self._values["labels"]
        if not isinstance(pairs, dict) or not pairs or len(pairs) > self._images:
            raise HTTPException(400, "labels: send a label for each image.")
        found = {}
        for key, value in pairs.items():
            if not (key.isascii() and key.isdecimal() and len(key) < 12 and self._is_id(int(key))):
                raise HTTPException(400, "labels: send image numbers.")
            found[int(key)] = self._word("labels", value)
        return found

    def word(self, name: str) -> str:
        """A short, printable text."""
        found = self._word(name, self._values.get(name, ""))
        if found is None:
            raise HTTPException(400, f"{name}: send a text.")
        return found

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of several words, the first by default."""
        value = self._values.get(name, choices[0])
        if value not in choices:
            raise HTTPException(400, f"{name}: one of {', '.join(choices)}.")
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise HTTPException(400, f"{name}: true or false.")
        return value

    def numbers(self, name: str) -> list[int]:
        """A few whole numbers."""
        values = self._values.get(name, [])
        if not isinstance(values, list) or len(values) > 100 or not all(type(value) is int for value in values):
            raise HTTPException(400, f"{name}: send a few numbers.")
        return values

    def _is_id(self, value: Any) -> bool:
        return type(value) is int and 0 <= value < self._images

    def _word(self, name: str, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not (text := value.strip()) or not text.isprintable():
            raise HTTPException(400, f"{name}: send a text that can be read.")
        if len(text) > LONGEST_LABEL:
            raise HTTPException(400, f"{name}: at most {LONGEST_LABEL} characters.")
        return text


def query_number(request: Request, name: str, default: int, high: int) -> int:
    """A whole number from the address, from 1 to `high`."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= high):
        raise HTTPException(400, f"{name}: a number from 1 to {high}.")
    return int(text)
