"""Commands: run a program of the operating system so that nothing of it outlives what started it.

Independent of the engine: `runner.py` is what a worker calls, `guard.py` is the process between the worker and the
command, `pipes.py` and `lines.py` read what the command writes.
"""
