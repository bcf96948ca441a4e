"""What was run, in numbers: recorded in summary.json, and derived for older folders."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vsam.lab import data, models
from vsam.lab.data.catalog import describe_one
from vsam.lab.recipes.recipe import Recipe

__all__ = ["SOURCE", "TRIAL", "VALIDATION", "Facts", "facts_of"]

TRIAL, SOURCE, VALIDATION = "trial", "full-precision source", "validation"


@dataclass(frozen=True)
class Facts:
    """The size of a run and what it was for; None where unknown.

    Args:
        parameters: trainable ones, of the full-precision network if it is quantized.
        train_images: per epoch.
        available_images: for training, in the complete dataset.
        test_images: that accuracy is measured on.
        split: `test`, or `validation` for held-out training images.
        role: `run`, `trial` of a search, or `full-precision source` of quantized runs.
    """

    parameters: int | None = None
    train_images: int | None = None
    available_images: int | None = None
    test_images: int | None = None
    split: str = "test"
    role: str = "run"


def facts_of(settings: Mapping[str, Any], summary: Mapping[str, Any], recipe: Recipe | None) -> Facts:
    """The facts in a summary; for an unfinished or older run, as far as its settings reveal them."""
    known = {name: summary[name] for name in Facts.__dataclass_fields__ if name in summary}
    if len(known) < len(Facts.__dataclass_fields__):
        return _older(settings, summary, recipe)
    # Values of an unexpected type would fail later, wherever they are shown.
    kinds = {name: str if isinstance(field.default, str) else int for name, field in Facts.__dataclass_fields__.items()}
    checked: dict[str, Any] = {name: value for name, value in known.items() if type(value) is kinds[name]}
    return Facts(**checked)


def _older(settings: Mapping[str, Any], summary: Mapping[str, Any], recipe: Recipe | None) -> Facts:
    """Before roles were settings, a trial's recipe was named NAME-tune, and its data NAME-validation."""
    names = str(settings.get("name")), str(summary.get("data", "-validation")), str(settings.get("variant"))
    role = str(settings.get("role", "run"))
    if role == "run":
        is_trial = names[0].endswith("-tune") and names[1].endswith("-validation")
        role = TRIAL if is_trial else SOURCE if names[2] == "full-precision" else "run"
    split = VALIDATION if role == TRIAL else "test"
    whole = describe_one(recipe.data.name) if recipe else None
    if recipe is None:
        return Facts(split=split, role=role)
    train = recipe.data.train or (whole.num_train if whole else None)
    test = recipe.data.test or (whole.num_test if whole else None)
    if split == VALIDATION and train:
        train, test = train - train // data.HELD_OUT, train // data.HELD_OUT
    parameters = None
    if whole and whole.num_classes and whole.image_shape:
        parameters = models.count_parameters(recipe.model, whole.num_classes, whole.image_shape[0])
    return Facts(parameters, train, whole.num_train if whole else None, test, split, role)
