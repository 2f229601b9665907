"""Execute frequent turns with fewer statements than kernel/turn.py, and the same result."""
