"""Find the store for a URL: the only code that knows which databases there are.

Code outside store/ asks here, or asks its `Store`; it never tests which database it runs on. A further store is one
entry in `_STORES`, or one call of `register` from another package. docs/stores.md says how to write one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from hark.model.errors import InvalidInput
from hark.model.extras import import_extra
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


def register(scheme: str, path: str, *, extra: str | None = None) -> None:
    """Make URLs of the form `scheme://…` open the store type at `path`.

    Args:
        scheme: What stands before `://`; an earlier entry of the same scheme is replaced.
        path: `module:name` of a `StoreType`, imported when such a URL is first used.
        extra: The extra of `hark` that installs the driver, named in the error when the import fails.
    """
    _STORES[scheme] = _Entry(path, extra)


def factory(url: str, *, schema: str, lease: float, clock: Callable[[], int] | None = None) -> Callable[[], Store]:
    """Return a function that makes the store at `url`; nothing is opened.

    Args:
        url: Where the store is: `sqlite:///file.db`, `postgresql://…`.
        schema: The schema to use, in databases that have schemas.
        lease: Seconds a worker's lease lasts: a store must not wait longer than that.
        clock: The time in µs, instead of the database's own clock. For tests.

    Raises:
        InvalidInput: `url` or `schema` is malformed, or no store has this scheme.
        MissingExtra: The driver is not installed.
    """
    kind = _type_of(url)
    kind.check(url, schema)
    return lambda: kind(url, schema=schema, lease=lease, clock=clock)


def exists(url: str) -> bool:
    """Return False if there is certainly no database at `url`. Opens no connection: a server may be down."""
    return _type_of(url).exists(url)


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
        raise InvalidInput(f"The store's URL must be text without NUL, not {url!r}. For example: sqlite:///file.db.")
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _STORES:
        raise InvalidInput(
            f"{url!r} is not the URL of a store. Use sqlite:///file.db, sqlite:// (in memory) or postgresql://…"
        )
    path, extra = _STORES[scheme]
    module, _, name = path.partition(":")
    if extra is None:
        found = importlib.import_module(module)
    else:
        found = import_extra(module, extra=extra, needed_by=f"{scheme}://")
    return cast("StoreType", getattr(found, name))
