"""Say why something failed, also for exceptions without a text.

`str()` of a TimeoutError, a CancelledError or a reset connection is often empty, and a message that ends in ": ." does
not help.
"""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """Return the text of an exception without its last full stop; the name of its type if it has no text."""
    return str(error).strip().rstrip(".") or type(error).__name__
