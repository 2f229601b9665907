"""Lines of text that fit a width. Without the font at hand, widths are those of Arial and its like, and some more."""

from __future__ import annotations

from functools import lru_cache
from unicodedata import combining, east_asian_width

FONT = "Arial,Helvetica,'Liberation Sans',sans-serif"
SIZE, LABEL_SIZE = 12.0, 11.0
LEADING = 1.2  # lines per size
LONGEST = 500  # characters that are drawn of one text; its title has more
_SPARE = 1.09  # machines without Arial use a font that is a little wider
_NARROW = frozenset("iIjl.,:;'|!`ítîï")
_SLIM = frozenset('ftr()[]{}/\\- "*')
_WIDE = frozenset("mwMWQ@%&—…")


@lru_cache(maxsize=4096)
def _share(character: str) -> float:
    """The width of a character as a share of the size."""
    if character in _NARROW:
        return 0.28
    if character in _SLIM:
        return 0.36
    if character in _WIDE:
        return 0.9
    if combining(character):
        return 0.0
    if east_asian_width(character) in "WF":
        return 1.0
    return 0.7 if character.isupper() else 0.56


def width_of(text: str, size: float = SIZE) -> float:
    return sum(map(_share, text)) * size * _SPARE


def wrapped(text: str, width: float, size: float = SIZE, most: int = 8) -> list[str]:
    """The text in lines.

    Args:
        text: What to wrap. A line break in it is kept.
        width: What a line may take. A word that is wider is cut into several lines.
        size: The size of the font.
        most: At most so many lines; the last one ends in `…` if there is more.
    """
    text = text[:LONGEST] + ("…" if len(text) > LONGEST else "")
    room = max(width, size)
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines += _paragraph(paragraph, room, size)
    if len(lines) > max(most, 1):
        lines = lines[: max(most, 1)]
        last = lines[-1]
        while last and width_of(f"{last}…", size) > room:
            last = last[:-1]
        lines[-1] = f"{last.rstrip()}…"
    return lines


def _paragraph(text: str, room: float, size: float) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and width_of(f"{line} {word}", size) <= room:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        while width_of(word, size) > room and len(word) > 1:
            head = _cut(word, room, size)
            lines.append(word[:head])
            word = word[head:]
        line = word
    if line:
        lines.append(line)
    return lines


def _cut(word: str, room: float, size: float) -> int:
    """The number of characters of a word that fit; at a seam such as `_` or `-` if there is one in the second half."""
    taken = 0.0
    end = len(word)
    for index, character in enumerate(word):
        taken += _share(character) * size * _SPARE
        if taken > room:
            end = max(index, 1)
            break
    for index in range(end, end // 2, -1):
        if word[index - 1] in "_-./:" or (word[index - 1].islower() and word[index : index + 1].isupper()):
            return index
    return end


def block(lines: list[str], size: float = SIZE) -> tuple[float, float]:
    """The width and height of lines."""
    return max((width_of(line, size) for line in lines), default=0.0), len(lines) * size * LEADING
