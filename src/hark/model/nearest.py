"""Find the known word that is nearest to a misspelled one, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_WORK = 100_000  # characters of the word, times those of the known ones: comparing takes about a microsecond each


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one; None if none is close. Of very many, only the first are compared."""
    left = _MOST_WORK
    some: list[str] = []
    for other in known:
        left -= len(word) * len(other) + 1
        if left < 0:
            break
        some.append(other)
    return next(iter(get_close_matches(word, some, n=1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'needs'?`, or the empty text if no known word is close."""
    nearest = nearest_word(word, known)
    return "" if nearest is None else f" Did you mean {nearest!r}?"
