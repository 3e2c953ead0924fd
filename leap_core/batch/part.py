"""One of the parts of a batch that several processes answer, each for itself: which lines it has, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from ..errors import LeapOptionsError
from .input.compressed import compression_of
from .input.remote_files import is_url

MOST_PARTS = 100_000


@dataclass(frozen=True)
class Part:
    """The part ``number``, from 1, of ``count``. A line is always in the same part, whatever lines come or go."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_PARTS:
            raise LeapOptionsError("shard", f"{self.count} parts are not between 1 and {MOST_PARTS}")
        if not 1 <= self.number <= self.count:
            raise LeapOptionsError("shard", f"{self.number}/{self.count}: parts are counted from 1 to {self.count}")

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @staticmethod
    def of_line(digest: str, count: int) -> int:
        """The number of the part that has the line with this digest."""
        return int(digest, 16) % count + 1

    def has(self, digest: str) -> bool:
        """Whether the line with this digest (32 hexadecimal digits) is in the part."""
        return self.of_line(digest, self.count) == self.number

    def path(self, whole: str) -> str:
        """The part's own file in place of one of the whole batch: ``out.jsonl`` becomes ``out.3-of-7.jsonl``."""
        path = PurePath(whole)
        if is_url(whole):
            directory, _, name = whole.rpartition("/")
            return f"{directory}/{self.path(name)}"
        compression = path.suffix if compression_of(whole) else ""
        inner = PurePath(path.name.removesuffix(compression))
        return str(path.with_name(f"{inner.stem}.{self.number}-of-{self.count}{inner.suffix}{compression}"))
