"""The style of a process diagram, in light and dark."""

from __future__ import annotations

from hark.programs.bpmn.drawing.drawing_text import FONT, LABEL_SIZE, SIZE
from hark.programs.svg import style

_PLAIN = (  # no colors, except on those of the file
    f".hark text{{font-family:{FONT};text-anchor:middle}}.hark{{font-size:{SIZE:g}px}}"
    f".hark .label text{{font-size:{LABEL_SIZE:g}px;paint-order:stroke;stroke-width:3px;stroke-linejoin:round}}"
    ".hark .s11{font-size:11px}.hark .s10{font-size:10px}"
    ".hark .left text{text-anchor:start}.hark .heading text{text-anchor:start;font-weight:bold;font-size:13px}"
    ".hark path{stroke-linejoin:round;stroke-linecap:round}"
    ".hark .shape,.hark .scope,.hark .pool,.hark .lane{stroke-width:1.5px}"
    ".hark .thick{stroke-width:3.5px}.hark .call{stroke-width:4px}"
    ".hark .line,.hark .cut{fill:none;stroke-width:1.2px}.hark .bold{fill:none;stroke-width:2.6px}"
    ".hark .bar{fill:none;stroke-width:2.4px;stroke-linecap:butt}.hark .flow{fill:none;stroke-width:1.5px}"
    ".hark .dashed{stroke-dasharray:5 3}.hark .dotted{stroke-dasharray:1 5}.hark .rim{stroke-dasharray:1 4}"
    ".hark .group{fill:none;stroke-width:1.5px;stroke-dasharray:10 5 1.5 5}"
    ".hark .message{stroke-dasharray:9 6;stroke-width:1.3px}"
    ".hark .taken .flow{stroke-width:2.6px}.hark .has-token .shape,.hark .has-incident .shape{stroke-width:3px}"
    ".hark .badge text{font-size:11px;font-weight:bold}.hark .times text{font-size:10px}"
    ".hark .badge .disc{stroke-width:1.5px}"
    # The colors of the file stay in dark mode, so what is drawn on them has a color of its own.
    ".hark .on-light text,.hark .on-light .ink{fill:#182230}.hark .on-light .line,.hark .on-light .bold,"
    ".hark .on-light .bar{stroke:#182230}.hark .on-light .cut{stroke:#fff}"
    ".hark .on-dark text,.hark .on-dark .ink{fill:#fff}.hark .on-dark .line,.hark .on-dark .bold,"
    ".hark .on-dark .bar{stroke:#fff}.hark .on-dark .cut{stroke:#182230}"
    ".hark .tint{stroke-width:1.5px}"
)
_RULES = {
    ".paper": {"fill": "paper"},
    "text": {"fill": "ink"},
    ".label text": {"stroke": "paper"},
    ".shape": {"fill": "surface", "stroke": "ink"},
    ".pool": {"fill": "paper", "stroke": "line"},
    ".lane": {"fill": "paper", "stroke": "line"},
    ".scope": {"fill": "paper", "stroke": "ink"},
    ".line": {"stroke": "ink"},
    ".bold": {"stroke": "ink"},
    ".bar": {"stroke": "ink"},
    ".ink": {"fill": "ink"},
    ".cut": {"stroke": "surface"},
    ".wash": {"fill": "faint"},
    ".flow": {"stroke": "line"},
    ".head": {"fill": "line", "stroke": "line"},
    ".open": {"fill": "surface", "stroke": "line"},
    ".group": {"stroke": "line"},
    ".visited>.shape": {"fill": "green-wash", "stroke": "green"},
    ".visited>.scope": {"fill": "paper", "stroke": "green"},
    ".taken .flow": {"stroke": "green"},
    ".taken .head": {"fill": "green", "stroke": "green"},
    ".has-token>.shape": {"stroke": "blue"},
    ".has-incident>.shape": {"stroke": "red"},
    ".badge .token": {"fill": "blue", "stroke": "paper"},
    ".badge .wait": {"fill": "amber", "stroke": "paper"},
    ".badge .incident": {"fill": "red", "stroke": "paper"},
    ".badge .times": {"fill": "paper", "stroke": "green"},
    ".badge text": {"fill": "paper"},
    ".badge .sign": {"fill": "paper", "stroke": "paper"},
    ".badge.count text": {"fill": "green"},
    ".key": {"fill": "well", "stroke": "faint"},
}


def sheet() -> str:
    return style(_RULES, plain=_PLAIN)
