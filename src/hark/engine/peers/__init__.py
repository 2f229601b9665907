"""Look after what other processes on the same store did or left, beside the turns."""
