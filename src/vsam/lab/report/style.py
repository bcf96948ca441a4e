"""How a label looks in every figure: a colour that most colour-blind people tell apart, a dash and a marker."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Style", "styles_for"]

# Okabe and Ito's colours where they are seen on white and on near black, and others between them.
_FIXED = {
    "sgd": "#808080",
    "sam": "#0072b2",
    "vsam": "#d55e00",
    "vsam-a": "#e69f00",
    "sam-5": "#56b4e9",
    "looksam-5": "#009e73",
    "ae-sam": "#cc79a7",
    "esam": "#8a63d2",
    "saf": "#a8842c",
    "mesa": "#a4416b",
    "sam-10": "#3aa6a6",
    "asam": "#7d9a2b",
}
_COLORS = tuple(_FIXED.values())[1:]
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


def styles_for(labels: Sequence[str]) -> dict[str, Style]:
    """A look for each label, no two alike for up to 44 labels; methods have a colour of their own if it is free.

    Args:
        labels: of all figures that are to be looked at together.
    """
    styles: dict[str, Style] = {}
    colors = {label: _FIXED[label] for label in labels if label in _FIXED}
    uses = dict.fromkeys(colors.values(), 1)
    for number, label in enumerate(labels):
        if label not in colors:
            colors[label] = min(_COLORS, key=lambda color: uses.get(color, 0))
            uses[colors[label]] = uses.get(colors[label], 0) + 1
        turn = 0 if label in _FIXED else uses[colors[label]] - 1
        styles[label] = Style(colors[label], _DASHES[turn % len(_DASHES)], _MARKERS[number % len(_MARKERS)])
    return styles
