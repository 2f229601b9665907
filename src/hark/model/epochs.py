"""Compute epochs: the numbers that tell the claims of an instance apart (invariant 2).

An epoch counts in its low half, and has a random number in its high half:

    every transition of the instance adds one
    every claim adds a nonce: one, and a random number to the high half (store/statements/claims.py)

After a restore, or a failover that lost commits, the same transition is made a second time, perhaps by another process.
The counts are equal then; the random numbers are not, so an outcome of the lost past is refused. They add up: an epoch
also tells apart histories whose last claim was made in only one of them (decision 24).
"""

from __future__ import annotations

import os
from typing import Final

_HALF: Final = 31  # bits; both halves and a nonce added to them fit into 63
_COUNT: Final = (1 << _HALF) - 1
MASK: Final = (1 << 2 * _HALF) - 1
"""The bits that a claim keeps of an epoch and its nonce. The statements have it as a number."""


def new_nonce() -> int:
    """Make the number that the claims of one turn add to the epochs of their instances.

    All claims of a turn may share it, because two histories have no turn in common. It does not come from `random`,
    which a program can seed."""
    return (int.from_bytes(os.urandom(4)) & _COUNT) << _HALF | 1


def epoch_before(claimed: int, nonce: int) -> int:
    """The epoch that an instance had before it was claimed with this nonce."""
    return (claimed - nonce) & MASK


def count_of(epoch: int) -> int:
    """The number of transitions of an instance that has this epoch. Only counts can be ordered."""
    return epoch & _COUNT
