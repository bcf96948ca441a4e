"""How a label looks in every figure: a colour-blind-friendly colour, a dash pattern, a marker and its position."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vsam.lab.methods import METHODS

__all__ = ["Style", "place_of", "styles_for"]

_ORDER = {method.name: place for place, method in enumerate(METHODS)}
# Okabe and Ito's colours if they are visible on white and on near black, and others between them.
_FIXED = {method.name: method.color for method in METHODS if method.color}
# Labels without a colour of their own reuse these methods' colours, the most distinct first.
_LENDERS = ("sam", "vsam", "vsam-a", "sam-5", "looksam-5", "ae-sam", "esam", "saf", "mesa", "sam-10", "asam")
_COLORS = tuple(_FIXED[name] for name in _LENDERS)
_MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Style:
    """How a label is drawn.

    Args:
        color: as #rrggbb.
        dash: solid, dash, dot or dashdot.
        marker: circle, square, diamond, triangle-up, cross or star.
    """

    color: str
    dash: str
    marker: str


def place_of(method: str, label: str) -> tuple[Any, ...]:
    """Sort key: methods in their usual order, and a method's variants by number."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    pairs = [(float(part), "") if place % 2 else (-1.0, part) for place, part in enumerate(parts)]
    return (_ORDER.get(method, len(_ORDER)), method, pairs)


def styles_for(labels: Sequence[str]) -> dict[str, Style]:
    """A style per label; methods have fixed colours.

    No two labels share both colour and marker (up to 66 labels), or both colour and dash (up to 44).

    Args:
        labels: of all figures that belong together, sorted by `place_of`.
    """
    styles: dict[str, Style] = {}
    markers: dict[str, list[str]] = {color: [] for color in _FIXED.values()}  # already used with a colour
    for label in sorted(labels, key=lambda label: label not in _FIXED):
        color = _FIXED.get(label) or min(_COLORS, key=lambda color: len(markers[color]))
        used = markers[color]
        first = labels.index(label)
        turned = [_MARKERS[(first + place) % len(_MARKERS)] for place in range(len(_MARKERS))]
        marker = min(turned, key=used.count)
        styles[label] = Style(color, _DASHES[len(used) % len(_DASHES)], marker)
        used.append(marker)
    return {label: styles[label] for label in labels}
