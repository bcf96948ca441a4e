"""Which runs each table and figure of the paper needs, at three scales."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vsam.lab.comparison.compare import run_path
from vsam.lab.methods import METHODS
from vsam.lab.recipes.recipe import Recipe, load_recipe

__all__ = ["SCALES", "SEEDS", "STUDIES", "Part", "Scale", "Study"]

Scale = Literal["tiny", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SEEDS: dict[Scale, int] = {"tiny": 1, "small": 3, "paper": 3}

_PAPER = [f"{data}-{model}" for model in ("resnet18", "wrn28-10", "pyramidnet110") for data in ("cifar10", "cifar100")]
_RECIPES: dict[Scale, list[str]] = {
    "tiny": ["fashion-mini"],
    "small": ["cifar10-small", "cifar10-small-noisy", "cifar100-small"],
    "paper": _PAPER,
}
_STUDIED: dict[Scale, str] = {"tiny": "fashion-mini", "small": "cifar10-small-noisy", "paper": "cifar100-wrn28-10"}
_ABLATED = ("sgd", "sam", "sam-5", "vsam", "vsam-a")
_PAPERS_ALPHA, _PAPERS_GAMMA = 0.13, 0.8  # what the one study holds fast while it varies the other


@dataclass(frozen=True)
class Part:
    """Runs of one network on one data set, whose rows are compared with each other.

    Args:
        name: of the recipe that they share.
        recipes: one a run.
    """

    name: str
    recipes: tuple[Recipe, ...]


@dataclass(frozen=True)
class Study:
    """One table or figure.

    Args:
        name: by which the command knows it.
        title: what it shows, and which part of the paper that is.
        varied: the setting of vSAM that it varies, if it does.
        plan: its parts in the order in which they must run, from the scale, the number of seeds and the runs' folder.
    """

    name: str
    title: str
    varied: str | None
    plan: Callable[[Scale, int, Path], list[Part]]


def _table1(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    everything = [method.name for method in METHODS]
    return [_methods(_load(name, scale), everything, seeds) for name in _RECIPES[scale]]


def _ablation(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    names = ["cifar10-resnet18", "cifar100-resnet18"] if scale == "paper" else _RECIPES[scale]
    return [_methods(_load(name, scale), _ABLATED, seeds) for name in names]


def _norms(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    return [_methods(_load(name, scale), ("sam", "vsam"), seeds) for name in _RECIPES[scale]]


def _alpha(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    values = [0.05, 0.1, 0.13, 0.15, 0.2] if scale == "paper" else [0.05, 0.1, 0.2, 0.3, 0.4]
    fast = {"gamma": _PAPERS_GAMMA} if scale == "paper" else {}
    name = _STUDIED[scale]
    return [_varied(_load(name, scale), [{"alpha": value, **fast} for value in values], seeds)]


def _gamma(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    fast = {"alpha": _PAPERS_ALPHA} if scale == "paper" else {}
    names = _RECIPES[scale] if scale == "small" else [_STUDIED[scale]]
    settings = [{"gamma": value, **fast} for value in (0.6, 0.7, 0.8, 0.9)]
    return [_varied(_load(name, scale), settings, seeds) for name in names]


def _lsq(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    models = {"tiny": ["resnet8"], "small": ["resnet20", "mobilenet-25"], "paper": ["resnet18", "mobilenet"]}[scale]
    return [part for model in models for part in _quantized(scale, model, seeds, runs)]


STUDIES = {
    study.name: study
    for study in (
        Study("table1", "All methods: accuracy, second gradients and speed (table 1, figure 1)", None, _table1),
        Study("alpha", "What α does: samples and accuracy (the paper's study of α)", "alpha", _alpha),
        Study("gamma", "What γ does (the paper's study of γ)", "gamma", _gamma),
        Study(
            "ablation", "Adaptive sampling and reuse apart: SAM-5, vSAM, vSAM-A (the paper's ablation)", None, _ablation
        ),
        Study(
            "lsq", "Quantization-aware training with 4-bit weights and activations (the paper's W4A4 table)", None, _lsq
        ),
        Study("norms", "‖g‖ and ‖PSF‖ over training, and what vSAM makes of them (figure 2)", None, _norms),
    )
}


def _load(name: str, scale: Scale) -> Recipe:
    return load_recipe(name, tiny=scale == "tiny")


def _methods(recipe: Recipe, names: Sequence[str], seeds: int) -> Part:
    return Part(recipe.name, tuple(_with(recipe, seed, method=name) for seed in range(seeds) for name in names))


def _with(recipe: Recipe, seed: int, **changes: Any) -> Recipe:
    return recipe.model_copy(update={"seed": recipe.seed + seed, **changes})


def _varied(recipe: Recipe, settings: Sequence[dict[str, float]], seeds: int) -> Part:
    return Part(
        recipe.name,
        tuple(
            _with(recipe, seed, **changes)
            for seed in range(seeds)
            for changes in ({"method": "sam"}, *(_variant(recipe, setting) for setting in settings))
        ),
    )


def _variant(recipe: Recipe, settings: dict[str, float]) -> dict[str, Any]:
    """vSAM with other settings. The recipe's own have no name, so that studies share those runs."""
    names = [f"{key}-{value:g}" for key, value in settings.items() if value != getattr(recipe.vsam, key)]
    return {"method": "vsam", "variant": "-".join(names) or None, "vsam": recipe.vsam.model_copy(update=settings)}


def _quantized(scale: Scale, model: str, seeds: int, runs: Path) -> list[Part]:
    """Full precision first, then every method from the checkpoint of its seed."""
    runs = runs.resolve()  # so that machines of a cluster find the checkpoints from wherever they work
    source = {"tiny": "fashion-mini", "small": "cifar10-small", "paper": "cifar10-resnet18"}[scale]
    lsq = {"tiny": "cifar10-small-lsq", "small": "cifar10-small-lsq", "paper": f"cifar10-{model}-lsq"}[scale]
    full, quantized = _load(source, scale), _load(lsq, scale)
    common = {"model": model, "data": full.data}
    begin = [
        _with(full, seed, **common, name=f"{full.name}-{model}", method="sgd", variant="full-precision")
        for seed in range(seeds)
    ]
    assert quantized.quantize is not None
    then = [
        _with(
            quantized,
            seed,
            **common,
            name=f"{quantized.name}-{model}",
            method=method,
            quantize=quantized.quantize.model_copy(update={"checkpoint": str(run_path(runs, start) / "checkpoint.pt")}),
        )
        for seed, start in enumerate(begin)
        for method in ("sgd", "sam", "vsam")
    ]
    return [Part(begin[0].name, tuple(begin)), Part(then[0].name, tuple(then))]
