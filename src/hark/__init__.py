"""Hark: durable workflows that wait for the outside world."""

from typing import TYPE_CHECKING, Any

from hark.model.version import VERSION

if TYPE_CHECKING:
    from hark._public import *
    from hark._public import __all__ as __all__

__version__ = VERSION


def __getattr__(name: str) -> Any:
    # Imported at the first use: the command line prints its help and completes words without the engine.
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'hark' has no attribute {name!r}")
    from hark import _public

    if name in _public.LATER:
        globals()[name] = getattr(_public, name)
    else:
        names = ["__all__", *_public.__all__]
        globals().update({public: getattr(_public, public) for public in names if public not in _public.LATER})
    if name not in globals():
        raise AttributeError(f"module 'hark' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    from hark import _public

    return [*_public.__all__, "__version__"]
