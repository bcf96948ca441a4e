"""The runs that each table and figure of the paper needs, at three scales."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:  # names are listed without importing pydantic
    from vsam.lab.recipes.recipe import Recipe

__all__ = ["SCALES", "SEEDS", "STUDIES", "Parts", "Scale", "Study"]

Scale = Literal["tiny", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SEEDS: dict[Scale, int] = {"tiny": 1, "small": 3, "paper": 3}
Parts = dict[str, list["Recipe"]]
"""Recipes by part, which is one network on one dataset, whose rows are compared with each other."""

_RECIPES: dict[Scale, tuple[str, ...]] = {
    "tiny": ("fashion-mini",),
    "small": ("cifar10-small", "cifar10-small-noisy", "cifar100-small"),
    "paper": tuple(
        f"{data}-{m}" for m in ("resnet18", "wrn28-10", "pyramidnet110") for data in ("cifar10", "cifar100")
    ),
}
_STUDIED: dict[Scale, tuple[str, ...]] = {
    "tiny": ("fashion-mini",),
    "small": ("cifar10-small-noisy",),
    "paper": ("cifar100-wrn28-10",),
}
_ABLATED = {**_RECIPES, "paper": ("cifar10-resnet18", "cifar100-resnet18")}
_TABLE_1 = (
    *("sgd", "sam", "sam-5", "sam-10", "looksam-5", "esam", "saf", "mesa", "ae-sam"),
    *("vsam", "vsam-a", "asam"),
)


@dataclass(frozen=True)
class Study:
    """One table or figure.

    Args:
        title: what it shows, and which part of the paper that is.
        parts: its runs, from the scale, the number of seeds and the runs' folder, in the order in which they must run.
        varied: the setting of vSAM that it varies, if any.
    """

    title: str
    parts: Callable[[Scale, int, Path], Parts]
    varied: str | None = None


def _table_1(scale: Scale, seeds: int, runs: Path) -> Parts:
    from vsam.lab.plugins import list_plugins

    names = [*_TABLE_1, *(plugin.name for plugin in list_plugins("method"))]
    return _methods(_RECIPES[scale], names, scale, seeds)


def _ablation(scale: Scale, seeds: int, runs: Path) -> Parts:
    return _methods(_ABLATED[scale], ("sgd", "sam", "sam-5", "vsam", "vsam-a"), scale, seeds)


def _norms(scale: Scale, seeds: int, runs: Path) -> Parts:
    return _methods(_RECIPES[scale], ("sam", "vsam"), scale, seeds)


def _alpha(scale: Scale, seeds: int, runs: Path) -> Parts:
    from vsam.lab.study.paper import ALPHA_STUDY_GAMMA, published

    values = [0.05, 0.1, 0.2, 0.3, 0.4]
    if scale == "paper":
        values = [float(name) for name in published("alpha", "wrn28-10", "cifar100") if name != "sam"]
    fast = {"gamma": ALPHA_STUDY_GAMMA} if scale == "paper" else {}
    return _varied(_STUDIED[scale], [{"alpha": value, **fast} for value in values], scale, seeds)


def _gamma(scale: Scale, seeds: int, runs: Path) -> Parts:
    from vsam.lab.study.paper import GAMMA_STUDY_ALPHA, published

    fast = {"alpha": GAMMA_STUDY_ALPHA} if scale == "paper" else {}
    values = [float(name) for name in published("gamma", "wrn28-10", "cifar100")]
    names = _RECIPES[scale] if scale == "small" else _STUDIED[scale]
    return _varied(names, [{"gamma": value, **fast} for value in values], scale, seeds)


def _lsq(scale: Scale, seeds: int, runs: Path) -> Parts:
    """Full precision first, then every method from the checkpoint of its seed."""
    from vsam.lab.run import run_path

    models = {"tiny": ["resnet8"], "small": ["resnet20", "mobilenet-25"], "paper": ["resnet18", "mobilenet"]}[scale]
    source = {"tiny": "fashion-mini", "small": "cifar10-small", "paper": "cifar10-resnet18"}[scale]
    parts: Parts = {}
    for model in models:
        full = _load(source, scale)
        lsq = _load(f"cifar10-{model}-lsq" if scale == "paper" else "cifar10-small-lsq", scale)
        assert lsq.quantize is not None
        common: dict[str, Any] = {"model": model, "data": full.data}
        role = {"method": "sgd", "variant": "full-precision", "role": "full-precision source"}
        names = [f"{one.name.removesuffix('-tiny')}-{model}" for one in (full, lsq)]
        names = [f"{name}-tiny" if scale == "tiny" else name for name in names]
        begin = [_with(full, seed, **common, **role, name=names[0]) for seed in range(seeds)]
        paths = [run_path(runs.resolve(), recipe) / "checkpoint.pt" for recipe in begin]
        parts[names[0]] = begin
        parts[names[1]] = [
            _with(lsq, seed, **common, method=method, name=names[1], quantize=quantize)
            for seed, path in enumerate(paths)
            for quantize in [lsq.quantize.model_copy(update={"checkpoint": str(path)})]
            for method in ("sgd", "sam", "vsam")
        ]
    return parts


STUDIES = {
    "table1": Study("The paper's methods: accuracy, second gradients and speed (table 1, figure 1)", _table_1),
    "alpha": Study("What α does: samples and accuracy (the paper's study of α)", _alpha, "alpha"),
    "gamma": Study("What γ does (the paper's study of γ)", _gamma, "gamma"),
    "ablation": Study("Adaptive sampling and reuse apart: SAM-5, vSAM, vSAM-A (the paper's ablation)", _ablation),
    "lsq": Study("Quantization-aware training with 4-bit weights and activations (the paper's W4A4 table)", _lsq),
    "norms": Study("‖g‖ and ‖PSF‖ over SAM's run, and vSAM's rate (figure 2)", _norms),
}


def _load(name: str, scale: Scale) -> "Recipe":
    from vsam.lab.recipes.load import load_recipe

    return load_recipe(name, tiny=scale == "tiny")


def _with(recipe: "Recipe", seed: int, **changes: Any) -> "Recipe":
    return recipe.updated(seed=recipe.seed + seed, **changes)


def _methods(names: Sequence[str], methods: Sequence[str], scale: Scale, seeds: int) -> Parts:
    recipes = [_load(name, scale) for name in names]
    return {one.name: [_with(one, seed, method=name) for seed in range(seeds) for name in methods] for one in recipes}


def _varied(names: Sequence[str], settings: Sequence[dict[str, float]], scale: Scale, seeds: int) -> Parts:
    """SAM, and vSAM with other settings. The recipe's own get no variant, so that studies share those runs."""
    parts: Parts = {}
    for recipe in (_load(name, scale) for name in names):
        variants: list[dict[str, Any]] = [{"method": "sam"}]
        for one in settings:
            changed = [f"{key}-{value:g}" for key, value in one.items() if value != getattr(recipe.vsam, key)]
            vsam = recipe.vsam.model_copy(update=one)
            variants.append({"method": "vsam", "variant": "-".join(changed) or None, "vsam": vsam})
        parts[recipe.name] = [_with(recipe, seed, **one) for seed in range(seeds) for one in variants]
    return parts
