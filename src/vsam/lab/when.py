"""Find the settings of the map that are nearest to a base run."""

import json
from importlib.resources import files
from typing import Any

from vsam.lab.errors import UserError

__all__ = ["FAR", "settings_like"]

NEAREST = 4
"""Minimum number of settings shown. All within `NEAR` points are shown."""
NEAR = 10.0
FAR = 15.0
"""Points beyond which no setting resembles a run."""


def settings_like(train_accuracy: float, test_accuracy: float) -> list[dict[str, Any]]:
    """Return the map's settings whose base has about these accuracies, sorted by overfitting.

    The `distance` of a setting is the larger of the differences in training and in test accuracy, in points.

    Args:
        train_accuracy, test_accuracy: of a base run after its last epoch, in percent.
    """
    for name, value in (("training", train_accuracy), ("test", test_accuracy)):
        if not 0 <= value <= 100:
            raise UserError(f"The {name} accuracy is a percentage from 0 to 100, got {value:g}.")
    if 0 < max(train_accuracy, test_accuracy) <= 1:
        given, percent = f"{train_accuracy:g} {test_accuracy:g}", f"{100 * train_accuracy:g} {100 * test_accuracy:g}"
        raise UserError(f"Accuracies are in percent: write --accuracy {percent} instead of {given}.")
    # Written by `python -m research.map.analyse --write`.
    settings = json.loads(files("vsam.lab").joinpath("map.json").read_text(encoding="utf-8"))
    for row in settings:
        row["distance"] = max(abs(row["train_accuracy"] - train_accuracy), abs(row["test_accuracy"] - test_accuracy))
    near = sorted(settings, key=lambda row: row["distance"])
    shown = [row for place, row in enumerate(near) if place < NEAREST or row["distance"] <= NEAR]
    return sorted(shown, key=lambda row: row["train_accuracy"] - row["test_accuracy"])
