"""The entrances from outside the process: HTTP (with the links of awakeables) and the command line.

Doors import `app` and `model`, and nothing of each other but errors.py.
"""
