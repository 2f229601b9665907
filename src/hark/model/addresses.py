"""Recognise the addresses of this machine."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Return True for a loopback address or `localhost`. A DNS server may resolve `*.localhost` to any address."""
    name = host.removeprefix("[").removesuffix("]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
