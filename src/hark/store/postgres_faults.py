"""Translate errors of asyncpg into the kinds of failure of the contract (store/protocol.py)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from typing import Final

import asyncpg

from hark.model.reasons import reason
from hark.store.protocol import Conflicted, Damaged, Full, Lost, Refused, StoreFault, Taken, Unreachable

_DAMAGED: Final = ("XX001", "XX002")  # data_corrupted, index_corrupted


def fault_of(error: BaseException) -> StoreFault:
    text = reason(error)
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state in ("40001", "40P01", "55P03", "57014", "25P03"):
            return Conflicted(text)
        if state[:2] in ("08", "57"):
            return Lost(text)
        if state in _DAMAGED:
            return Damaged(
                f"{text}. If that is only an index, REINDEX repairs it; else restore a backup. Check the disk and the "
                "memory"
            )
        if state[:2] in ("53", "58", "25"):
            return Full(text)
        return Taken(text) if state == "23505" else Refused(text)
    if isinstance(error, asyncpg.InterfaceError):
        # Either a closed connection, or a value that a column refuses, which is the fault of the request.
        return Lost(text) if "closed" in text or "connection" in text else Refused(text)
    name = type(error).__name__
    return Lost(text if text == name else f"{name}: {text}")


FAULTS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,
    asyncio.TimeoutError,
    asyncpg.InternalClientError,
)


def may_be_starting(error: BaseException) -> bool:
    """Return True if a connection may be possible soon: nothing listens yet, or the server says that it is starting,
    stopping or full. A wrong password, an unknown database or a certificate that is not valid stays wrong."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "") in ("57P01", "57P02", "57P03", "53300") or (error.sqlstate or "")[:2] == "08"
    return isinstance(error, OSError | asyncio.TimeoutError) and not isinstance(error, ssl.SSLError | PermissionError)


@contextlib.contextmanager
def terminated_on_failure(db: asyncpg.Connection) -> Iterator[None]:
    """Terminate a connection on which the query inside fails, so that it is not used again."""
    try:
        yield
    except FAULTS as error:
        db.terminate()
        raise fault_of(error) from error
    except asyncio.CancelledError:
        db.terminate()
        raise


def failed(db: asyncpg.Connection | None, error: BaseException) -> StoreFault:
    """Translate a driver's error. A server that did not answer in time counts as gone: nothing more is sent to it on
    this connection."""
    fault = fault_of(error)
    if db is not None and isinstance(fault, Lost):
        db.terminate()
    return fault


def unreachable(error: BaseException) -> Unreachable:
    return Unreachable(
        f"PostgreSQL cannot be reached: {reason(error)}. Check the URL, that the server is running and that it accepts "
        "this user."
    )
