"""Addresses of machines."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Whether this is a loopback address or `localhost`. Not `*.localhost`: a DNS server may resolve it to anything."""
    name = host.removeprefix("[").removesuffix("]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
