"""The paper's numbers, and which of them a run of ours may be compared with."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from vsam.lab.methods import all_methods, find_method
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.run import flat

__all__ = ["ALPHA_STUDY_GAMMA", "GAMMA_STUDY_ALPHA", "PAIRS", "STEPS", "Published", "published", "reference"]

PAIRS = tuple((model, data) for model in ("resnet18", "wrn28-10", "pyramidnet110") for data in ("cifar10", "cifar100"))
"""The six pairs of model and dataset of table 1."""

# Paper: the α study does not state its γ, nor the γ study its α. The rows α = 0.13 and γ = 0.8 have identical numbers,
# so they are one experiment.
ALPHA_STUDY_GAMMA = 0.8
GAMMA_STUDY_ALPHA = 0.13

STEPS = 78_200
"""Steps per run."""

_NUM_IMAGES = {"data.train": 50_000, "data.test": 10_000}
# Settings that distinguish runs of one experiment, or affect speed and logging but not the result.
_FREE = {"name", "method", "variant", "seed", "channels_last", "compile", "norms", "checkpoint_seconds", "role"}


@dataclass(frozen=True)
class Published:
    """A number that the paper prints, or None where it has none.

    Args:
        accuracy: test accuracy in percent. In the authors' code, that of the best epoch.
        std: its standard deviation over three seeds.
        samples: second gradients of 78,200 steps.
        ais: images per second on an RTX 3090.
        of_sam: the speed in percent of SAM's.
    """

    accuracy: float
    std: float | None = None
    samples: int | None = None
    ais: float | None = None
    of_sam: float | None = None


def published(study: str, model: str, data: str) -> dict[str, Published]:
    """Return a table by method or varied value, empty if the paper has none.

    Rows such as `esam-published` are quoted by the paper from the method's own paper.

    Args:
        study: table1, alpha, gamma, ablation or lsq.
        model, data: of the table.
    """
    table = _paper().get(study, {}).get(model, {}).get(data, {})
    return {name: Published(**numbers) for name, numbers in table.items()}


def reference(recipe: Recipe) -> Published | None:
    """Return the paper's number for a run, None unless the run's setting is the paper's.

    It is if everything that affects the result is as in the recipe that ships for the pair of model and data. Both
    variants of vSAM count, because the paper prints one and its authors released the other. The paper states no setting
    for quantized runs, and numbers that it quotes have their own settings: neither is ever a reference. Trials of a
    search are not measured on the paper's test images, so they have none either.
    """
    pair = recipe.model, recipe.data.name
    if recipe.role == "trial" or pair not in PAIRS:
        return None
    if _is_papers(recipe, {}):
        return published("ablation" if recipe.method == "vsam-a" else "table1", *pair).get(recipe.method)
    alpha, gamma = recipe.vsam.alpha, recipe.vsam.gamma
    if recipe.method == "vsam" and _is_papers(recipe, {"alpha": alpha, "gamma": ALPHA_STUDY_GAMMA}):
        return published("alpha", *pair).get(f"{alpha:g}")
    if recipe.method == "vsam" and _is_papers(recipe, {"alpha": GAMMA_STUDY_ALPHA, "gamma": gamma}):
        return published("gamma", *pair).get(f"{gamma:g}")
    return None


def _is_papers(recipe: Recipe, varied: Mapping[str, float]) -> bool:
    """Return whether a recipe is the shipped one, except for the settings of vSAM that a study varies."""
    shipped = _shipped(recipe.model, recipe.data.name)
    shipped = shipped.model_copy(update={"vsam": shipped.vsam.model_copy(update=varied)})
    return _what_decides(recipe, recipe.method) == _what_decides(shipped, recipe.method)


def _what_decides(recipe: Recipe, method: str) -> dict[str, Any]:
    """Return the settings that affect the result of a method's run."""
    settings, own = flat(recipe.model_dump()), {*find_method(method).settings}
    others = {key for row in all_methods() for key in row.settings if "." in key or key == "rho"} - own
    free = _FREE | others | {"vsam.variant"}
    return {key: None if _NUM_IMAGES.get(key) == one else one for key, one in settings.items() if key not in free}


@cache
def _shipped(model: str, data: str) -> Recipe:
    return load_recipe(f"{data}-{model}")


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads((resources.files("vsam.lab.study") / "paper.toml").read_text(encoding="utf-8"))
