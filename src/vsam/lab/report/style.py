"""How a label looks in every figure: a colour that most colour-blind people tell apart, a dash, a marker, its place."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vsam.lab.methods import METHODS

__all__ = ["Style", "place_of", "styles_for"]

_ORDER = {method.name: place for place, method in enumerate(METHODS)}
# Okabe and Ito's colours where they are seen on white and on near black, and others between them.
_FIXED = {method.name: method.color for method in METHODS if method.color}
# Whose colours others get, first those that are told apart best.
_LENDERS = ("sam", "vsam", "vsam-a", "sam-5", "looksam-5", "ae-sam", "esam", "saf", "mesa", "sam-10", "asam")
_COLORS = tuple(_FIXED[name] for name in _LENDERS)
_MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Style:
    """A look.

    Args:
        color: as #rrggbb.
        dash: solid, dash, dot or dashdot.
        marker: circle, square, diamond, triangle-up, cross or star.
    """

    color: str
    dash: str
    marker: str


def place_of(method: str, label: str) -> tuple[Any, ...]:
    """Sorts methods as they are listed everywhere, and a method's variants by their numbers."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    pairs = [(float(part), "") if place % 2 else (-1.0, part) for place, part in enumerate(parts)]
    return (_ORDER.get(method, len(_ORDER)), method, pairs)


def styles_for(labels: Sequence[str]) -> dict[str, Style]:
    """A look for each label; methods have a colour of their own.

    As far as there are enough, no two labels have the same colour and marker (up to 66 labels), nor the same colour and
    dash (up to 44).

    Args:
        labels: of all figures that are to be looked at together, sorted by `place_of`.
    """
    styles: dict[str, Style] = {}
    markers: dict[str, list[str]] = {color: [] for color in _FIXED.values()}  # those that a colour has already
    for label in sorted(labels, key=lambda label: label not in _FIXED):
        color = _FIXED.get(label) or min(_COLORS, key=lambda color: len(markers[color]))
        used = markers[color]
        first = labels.index(label)
        turned = [_MARKERS[(first + place) % len(_MARKERS)] for place in range(len(_MARKERS))]
        marker = min(turned, key=used.count)
        styles[label] = Style(color, _DASHES[len(used) % len(_DASHES)], marker)
        used.append(marker)
    return {label: styles[label] for label in labels}
