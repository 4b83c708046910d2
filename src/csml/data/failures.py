"""Images that cannot be read: logged, counted, and tolerated up to a share of the data set."""

import logging
from collections.abc import Iterable

from csml.data.decode import DecodeError
from csml.data.images import Images
from csml.errors import CsmlError

log = logging.getLogger("csml")


class Failures:
    """Collects the ids of unreadable images of one data set.

    Args:
        images: the data set.
        tolerated: share of the images that may fail.
        option: the option that raises this share, for the message.
        quiet: do not log them, because another pass over the images does.
    """

    def __init__(
        self, images: Images, tolerated: float, option: str = "--images.max_failed", quiet: bool = False
    ) -> None:
        self.images = images
        self.tolerated = tolerated
        self.ids: set[int] = set()
        self.option = option
        self.quiet = quiet

    def add(self, ids: Iterable[int]) -> None:
        """Log each new id with the reason; raise a CsmlError if there are too many."""
        for id in ids:
            if id not in self.ids:
                self.ids.add(id)
                if not self.quiet:
                    log.warning("skipped, cannot be read: %s (%s)", self.images.name(id), self._reason(id))
        if len(self.ids) > self.tolerated * len(self.images):
            raise CsmlError(
                f"{len(self.ids)} of {len(self.images)} images cannot be read: {self.images.name(max(self.ids))}; "
                f"repair or remove them, or raise {self.option} (now {self.tolerated:g})"
            )

    def _reason(self, id: int) -> str:
        """Decode the image again to get the error: rare, and cheaper than sending messages with every batch."""
        try:
            self.images.read(id)
        except DecodeError as error:
            return str(error.__cause__ or error)
        return "it can be read now"
