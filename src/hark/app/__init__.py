"""The application layer: `Hark`, which joins all layers below it, and what the doors get beside it.

hark          Hark: options, opening and closing, the public verbs
door_access   DoorAccess: what only the doors (HTTP, command line, links) ask of an app
"""

from hark.app.hark import Handle, Hark, Start

__all__ = ["Handle", "Hark", "Start"]
