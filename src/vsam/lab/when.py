"""What the methods gained in the map's settings that overfit as much as a given base run."""

import json
from importlib.resources import files
from typing import Any

from vsam.lab.errors import UserError

__all__ = ["settings_like"]

NEAREST = 4
"""Settings that are shown at least; more if they are as near as `NEAR` points."""
NEAR = 5.0


def settings_like(train_accuracy: float, test_accuracy: float) -> list[dict[str, Any]]:
    """Return the map's settings whose base overfits about as much, in the order of their overfitting.

    Args:
        train_accuracy, test_accuracy: of a base run after its last epoch, in percent.
    """
    for name, value in (("training", train_accuracy), ("test", test_accuracy)):
        if not 0 <= value <= 100:
            raise UserError(f"The {name} accuracy is a percentage from 0 to 100, got {value:g}.")
    gap = train_accuracy - test_accuracy
    # Written by `python -m research.map.analyse --write`.
    settings = json.loads(files("vsam.lab").joinpath("map.json").read_text(encoding="utf-8"))
    near = sorted(settings, key=lambda row: abs(row["gap"] - gap))
    shown = [row for place, row in enumerate(near) if place < NEAREST or abs(row["gap"] - gap) <= NEAR]
    return sorted(shown, key=lambda row: row["gap"])
