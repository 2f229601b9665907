"""Check what code does to the unfinished instances, without running it (V2)."""
