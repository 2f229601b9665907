"""SVG as jobs and processes draw it: one document, its colors in light and dark, and text that is escaped.

A drawing has no scripts, no references to anything outside it and no ids, so that several can stand in one page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape as _escape

COLORS: Mapping[str, tuple[str, str]] = {  # on light and on dark paper
    "paper": ("#ffffff", "#0d1117"),
    "surface": ("#ffffff", "#19212d"),
    "well": ("#f4f6fa", "#131a24"),
    "ink": ("#182230", "#e8edf5"),
    "soft": ("#4b5768", "#a9b6c8"),
    "line": ("#5f6c80", "#8b99ae"),
    "faint": ("#c3ccd8", "#3c495c"),
    "blue": ("#1d4ed8", "#8db0ff"),
    "blue-wash": ("#dcebff", "#1b2c52"),
    "amber": ("#8a5300", "#ffc46b"),
    "amber-wash": ("#fff3cf", "#3a2c0e"),
    "red": ("#b3261e", "#ff8f87"),
    "red-wash": ("#fde2e1", "#45191b"),
    "green": ("#15703f", "#6fd6a3"),
    "green-wash": ("#dcf5e3", "#12331f"),
}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


def escape(text: str) -> str:
    """The text for an element or an attribute. Characters that XML forbids become `\ufffd`."""
    return _escape(_FORBIDDEN.sub("\ufffd", text))


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    text = f"{value:.1f}"
    return "0" if text == "-0.0" else text.removesuffix(".0")


def style(rules: Mapping[str, Mapping[str, str]], *, plain: str = "") -> str:
    """A style sheet.

    Args:
        rules: By selector, the property and the name of its color in COLORS.
        plain: Rules that are the same in light and dark; they come last.
    """

    def sheet(side: int) -> str:
        return "".join(
            f".hark {selector}{{{';'.join(f'{key}:{COLORS[color][side]}' for key, color in found.items())}}}"
            for selector, found in rules.items()
        )

    return f"<style>{sheet(0)}@media (prefers-color-scheme:dark){{{sheet(1)}}}{plain}</style>"


def document(
    body: Iterable[str], *, size: tuple[float, float], title: str, description: str, sheet: str, largest: float = 16_000
) -> str:
    """A whole drawing.

    Args:
        body: What is drawn.
        size: Width and height.
        title: What is drawn, in a few words.
        description: What is seen, in a sentence or two, for people who hear it.
        sheet: Its style.
        largest: The longest side; a larger drawing is scaled down to it.
    """
    width, height = size
    scale = min(1.0, largest / max(width, height, 1))
    box = f"0 0 {number(width)} {number(height)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hark" width="{number(width * scale)}" '
            f'height="{number(height * scale)}" viewBox="{box}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            sheet,
            '<rect class="paper" width="100%" height="100%"/>',
            *body,
            "</svg>\n",
        ]
    )
