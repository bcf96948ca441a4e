"""The paper's numbers as data, and which of them a run of ours may be compared with."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from vsam.lab.errors import UserError
from vsam.lab.methods import METHODS, find_method
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe

__all__ = [
    "ALPHA_STUDY_GAMMA",
    "FEWEST_PARAMETERS",
    "GAMMA_STUDY_ALPHA",
    "MOST_MILLIONS",
    "NUM_IMAGES",
    "PAIRS",
    "STEPS",
    "Published",
    "ablation",
    "alpha",
    "gamma",
    "lsq",
    "reference",
    "references",
    "table1",
]

PAIRS = tuple((model, data) for model in ("resnet18", "wrn28-10", "pyramidnet110") for data in ("cifar10", "cifar100"))
"""The six model and dataset pairs of Table 1."""

# Paper: the α study does not state its γ, nor the γ study its α. The rows α = 0.13 and γ = 0.8 have identical numbers,
# so they are one experiment.
ALPHA_STUDY_GAMMA = 0.8
GAMMA_STUDY_ALPHA = 0.13

STEPS = 78_200
NUM_IMAGES = {"train": 50_000, "test": 10_000}
FEWEST_PARAMETERS, MOST_MILLIONS = 11_173_962, 36
"""Table 1: steps per run, images, parameters of the smallest network and, in millions, of the largest."""

# Settings that distinguish runs of one experiment, or affect speed and logging but not the result.
_FREE = {"name", "method", "variant", "seed", "channels_last", "compile", "norms", "checkpoint_seconds", "role"}
_SETTING = re.compile(r"-(alpha|gamma)-([0-9.e+-]*[0-9])")
_LABEL = re.compile(rf"(?P<method>.+?)(?P<varied>(?:{_SETTING.pattern})*)")


@dataclass(frozen=True)
class Published:
    """A number from the paper; None where it has none.

    Args:
        accuracy: test accuracy in percent; in the authors' code, that of the best epoch.
        std: its standard deviation over three seeds.
        samples: second gradients of 78,200 steps.
        ais: images per second on an RTX 3090.
        of_sam: the speed in percent of SAM's.
        source: who measured it: the paper, or the method's own paper, which this one quotes.
    """

    accuracy: float
    std: float | None = None
    samples: int | None = None
    ais: float | None = None
    of_sam: float | None = None
    source: Literal["paper", "method's own paper"] = "paper"


def table1(model: str, data: str) -> dict[str, Published]:
    """Table 1 by method; `esam-published` and the like are not the paper's own runs.

    Args:
        model: resnet18, wrn28-10 or pyramidnet110.
        data: cifar10 or cifar100.
    """
    return _rows(_find(_paper()["table1"], f"{model} on {data} in Table 1", model.replace("-", "_"), data))


def alpha() -> dict[float | str, Published]:
    """The α study with WRN-28-10 on CIFAR-100, by α, and by "sam"."""
    rows = _rows(_paper()["alpha"]["wrn28_10"]["cifar100"])
    return {name if name == "sam" else float(name): row for name, row in rows.items()}


def gamma() -> dict[float, Published]:
    """The γ study with WRN-28-10 on CIFAR-100, by γ."""
    return {float(name): row for name, row in _rows(_paper()["gamma"]["wrn28_10"]["cifar100"]).items()}


def ablation(data: str) -> dict[str, Published]:
    """The ablation with ResNet-18, by method.

    Args:
        data: cifar10 or cifar100.
    """
    return _rows(_find(_paper()["ablation"]["resnet18"], f"an ablation on {data}", data))


def lsq(model: str) -> dict[str, Published]:
    """4-bit weights and activations on CIFAR-10, by method, and by "full-precision".

    Args:
        model: resnet18 or mobilenet.
    """
    return _rows(_find(_paper()["lsq"]["cifar10"], f"{model} quantized", model))


def reference(recipe: Recipe, label: str) -> Published | None:
    """The paper's number for a run, if the run's setting is the paper's; else None.

    The setting is the paper's if everything that affects the result is as in the recipe that ships for the pair of
    model and data; both variants of vSAM count, because the paper prints one and its authors released the other. The
    paper states no setting for quantized runs, and numbers that it quotes have their own settings: neither is ever a
    reference. Trials of a search are not measured on the paper's test images, so they have none either.

    Args:
        recipe: of the run.
        label: the method and what was varied, if anything, as in `vsam-alpha-0.1-gamma-0.8`; must match.
    """
    found = _LABEL.fullmatch(label)
    varied = dict(_SETTING.findall(found["varied"])) if found else {}
    is_true = all(text == f"{getattr(recipe.vsam, name):g}" for name, text in varied.items())
    if found is None or found["method"] != recipe.method or not is_true or recipe.role == "trial":
        return None
    if varied:
        return _varied(recipe)
    if not _is_papers(recipe, {}):
        return None
    if label == "vsam-a":
        return ablation(recipe.data.name)[label] if recipe.model == "resnet18" else None
    return table1(recipe.model, recipe.data.name).get(label)


def references(recipes: Mapping[str, Recipe]) -> dict[str, Published]:
    """The references of several recipes, by the same names; those without one are left out."""
    found = {name: reference(recipe, recipe.label) for name, recipe in recipes.items()}
    return {name: numbers for name, numbers in found.items() if numbers is not None}


def _varied(recipe: Recipe) -> Published | None:
    """The row of the α and γ studies that matches a recipe's setting."""
    if (recipe.model, recipe.data.name, recipe.method) != ("wrn28-10", "cifar100", "vsam"):
        return None
    if _is_papers(recipe, {"alpha": recipe.vsam.alpha, "gamma": ALPHA_STUDY_GAMMA}):
        return alpha().get(recipe.vsam.alpha)
    if _is_papers(recipe, {"alpha": GAMMA_STUDY_ALPHA, "gamma": recipe.vsam.gamma}):
        return gamma().get(recipe.vsam.gamma)
    return None


def _is_papers(recipe: Recipe, varied: dict[str, float]) -> bool:
    """Whether a recipe is the shipped one, except for the settings of vSAM that a study varies."""
    if (recipe.model, recipe.data.name) not in PAIRS:
        return False
    shipped = _shipped(recipe.model, recipe.data.name)
    shipped = shipped.model_copy(update={"vsam": shipped.vsam.model_copy(update=varied)})
    return _what_decides(recipe, recipe.method) == _what_decides(shipped, recipe.method)


def _what_decides(recipe: Recipe, method: str) -> dict[str, Any]:
    """The settings that affect the result of a method's run."""
    settings, row = recipe.model_dump(), find_method(method)
    for name in _FREE | {section for other in METHODS for section in other.sections - row.sections}:
        settings.pop(name, None)
    for split, count in NUM_IMAGES.items():
        if settings["data"][split] == count:
            settings["data"][split] = None
    if "rho" not in row.settings and method != "asam":
        del settings["rho"]
    if "vsam" in row.sections:
        del settings["vsam"]["variant"]
        if method == "vsam-a":
            del settings["vsam"]["gamma"]
    return settings


def _find(table: dict[str, Any], what: str, *keys: str) -> dict[str, Any]:
    for key in keys:
        if key not in table:
            raise UserError(f"The paper has no {what}. It has: {', '.join(table)}.")
        table = table[key]
    return table


def _rows(table: dict[str, Any]) -> dict[str, Published]:
    return {name: Published(**numbers, source=_source(name)) for name, numbers in table.items()}


def _source(name: str) -> Literal["paper", "method's own paper"]:
    return "method's own paper" if name.endswith("-published") else "paper"


@cache
def _shipped(model: str, data: str) -> Recipe:
    return load_recipe(f"{data}-{model}")


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads((resources.files("vsam.lab.paper") / "paper.toml").read_text(encoding="utf-8"))
