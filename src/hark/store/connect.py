"""Find the store for a URL: the only code that knows which databases there are.

Code outside store/ asks here, or asks its `Store`; it never tests which database it runs on. A further store is one
entry in `_STORES`, or an entry point of another package. docs/stores.md says how to write one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from hark.model.errors import InvalidInput
from hark.model.extras import import_extra
from hark.model.masking import masked
from hark.store.protocol import Store, StoreType


class _Entry(NamedTuple):
    path: str
    """`module:name` of a `StoreType`: imported at the first use, since a driver is slow to import."""
    extra: str | None = None
    """The extra of the package that installs the driver."""


_POSTGRES: Final = _Entry("hark.store.postgres:PostgresStore", extra="postgres")
_STORES: Final[dict[str, _Entry]] = {
    "sqlite": _Entry("hark.store.sqlite:SqliteStore"),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}


def factory(url: str, *, schema: str, lease: float, clock: Callable[[], int] | None = None) -> Callable[[], Store]:
    """Return a function that makes the store at `url`. It does not connect; the clerk calls it on its own thread.

    Args:
        url: Where the store is: `sqlite:///file.db`, `postgresql://…`.
        schema: The schema to use, in databases that have schemas.
        lease: Seconds a worker's lease lasts. The store's lock and statement timeouts are shorter, so that a blocked
            turn does not outlive the lease.
        clock: The time in µs, instead of the database's own clock. For tests.

    Raises:
        InvalidInput: `url` or `schema` is malformed, or no store has this scheme.
        MissingExtra: The driver is not installed.
    """
    store_type = _type_of(url)
    store_type.check(url, schema)
    return lambda: store_type(url, schema=schema, lease=lease, clock=clock)


def exists(url: str) -> bool:
    """Return False if there is certainly no database at `url`. This opens no connection: a server may be down."""
    return _type_of(url).exists(url)


def shared_url(url: str) -> str | None:
    """Return the URL by which another process, in another directory, opens the same store; None if none can."""
    return _type_of(url).shared_url(url)


def dump_migrations(url: str, schema: str) -> str:
    """Return the SQL that creates the store at `url`, for databases whose schema is changed by hand.

    Raises:
        InvalidInput: `url` or `schema` is malformed, or no store has this scheme.
        MissingExtra: The driver is not installed.
    """
    kind = _type_of(url)
    kind.check(url, schema)
    return kind.dump_migrations(schema)


def _type_of(url: str) -> StoreType:
    if not isinstance(url, str) or "\0" in url:
        raise InvalidInput(
            f"The store's URL must be text without NUL, not {masked(url)!r}. For example: sqlite:///file.db."
        )
    scheme, separator, _ = url.partition("://")
    entry = (_STORES.get(scheme) or _installed(scheme)) if separator else None
    if entry is None:
        raise InvalidInput(
            f"{masked(url)!r} is not the URL of a store. Use sqlite:///file.db, sqlite:// (in memory) or postgresql://…"
        )
    module, _, name = entry.path.partition(":")
    if entry.extra is None:
        found = importlib.import_module(module)
    else:
        found = import_extra(module, extra=entry.extra, needed_by=f"{scheme}://")
    return cast("StoreType", getattr(found, name))


def _installed(scheme: str) -> _Entry | None:
    """The store that another installed package declares for this scheme, in the entry points `hark.stores`."""
    from importlib import metadata  # slow to import

    for declared in metadata.entry_points(group="hark.stores", name=scheme):
        return _Entry(declared.value)
    return None
