"""Choose tracks between two columns for the vertical pieces of edges, so that no two run on the same line."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush

_MOST_COMPARED = 250  # pieces of one gap whose tracks are chosen with care


@dataclass(slots=True, eq=False)
class Piece:
    """A vertical piece of one edge, or of several that leave the same point."""

    start: float
    ends: list[float]
    track: int = 0

    @property
    def low(self) -> float:
        return min(self.start, *self.ends)

    @property
    def high(self) -> float:
        return max(self.start, *self.ends)


def set_tracks(pieces: list[Piece]) -> int:
    """Give each piece a track. Pieces of one track do not overlap. Return the number of tracks.

    A piece that starts at the height where another one ends stands left of it: else both would run on the same line.
    """
    if not pieces:
        return 0
    pieces.sort(key=lambda piece: (piece.low, piece.high))
    if len(pieces) > _MOST_COMPARED:
        return _set_many(pieces)
    right_of: dict[Piece, list[Piece]] = defaultdict(list)
    for piece in pieces:
        for other in pieces:
            if other is not piece and any(abs(other.start - end) < 6 for end in piece.ends):
                right_of[piece].append(other)
    taken: list[list[Piece]] = []
    placed: set[Piece] = set()
    for piece in _left_first(pieces, right_of):
        track = max((other.track + 1 for other in right_of[piece] if other in placed), default=0)
        while track < len(taken) and any(
            piece.low < other.high + 6 and other.low < piece.high + 6 for other in taken[track]
        ):
            track += 1
        while len(taken) <= track:
            taken.append([])
        taken[track].append(piece)
        piece.track = track
        placed.add(piece)
    return len(taken)


def _set_many(pieces: list[Piece]) -> int:
    """Give each of many sorted pieces the track that is free for the longest time."""
    free: list[tuple[float, int]] = []  # where the last piece of a track ends, and the track
    for piece in pieces:
        if free and free[0][0] + 6 < piece.low:
            piece.track = heappop(free)[1]
        else:
            piece.track = len(free)
        heappush(free, (piece.high, piece.track))
    return len(free)


def _left_first(pieces: list[Piece], right_of: dict[Piece, list[Piece]]) -> list[Piece]:
    """The pieces, each after those that stand left of it, as far as they do not wait for each other in a circle."""
    order: list[Piece] = []
    seen: set[Piece] = set()
    for first in pieces:
        todo = [(first, False)]
        while todo:
            piece, is_done = todo.pop()
            if is_done:
                order.append(piece)
            elif piece not in seen:
                seen.add(piece)
                todo.append((piece, True))
                todo += [(other, False) for other in right_of[piece] if other not in seen]
    return order
