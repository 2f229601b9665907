"""The application layer: `Hark`, which joins all layers below it, and `DoorAccess` for the layer above.

hark          Hark: options, opening and closing, worker, server
starting · signalling · answering · reading · operating      the verbs of Hark, by topic
core          what the verbs share: asking the clerk, reading the store
handle        Handle: the verbs about one instance
new_instances the arguments of a start, checked and turned into data
answer_links  the signed links behind which an awakeable is answered
arguments     checks of all other arguments
door_access   DoorAccess: what only the doors (HTTP, command line, links) ask of an app
"""

from hark.app.handle import Handle
from hark.app.hark import Hark
from hark.app.new_instances import Start

__all__ = ["Handle", "Hark", "Start"]
