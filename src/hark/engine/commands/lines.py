"""LineSplitter: splits bytes, as they are read, into lines of text that can be shown and stored."""

from __future__ import annotations

import codecs
from typing import Final

MAX_LINE: Final = 8192  # characters: a longer line is given in parts


class LineSplitter:
    """Splits a stream of UTF-8 into lines, without their ends.

    Bytes that are not UTF-8 become U+FFFD. A line longer than `limit` characters is given in parts as soon as they are
    complete, so that no stream can fill the memory.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        """Return the lines that are complete with this data; with `final` also the last one, if it has no end."""
        *lines, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        if final and self._rest:
            lines.append(self._rest)
            self._rest = ""
        parts = [part for line in lines for part in self._parts(line.removesuffix("\r"))]
        while len(self._rest) > self._limit:
            parts.append(self._rest[: self._limit])
            self._rest = self._rest[self._limit :]
        return parts

    def _parts(self, line: str) -> list[str]:
        return [line[at : at + self._limit] for at in range(0, len(line), self._limit)] or [""]
