"""The runs that each table and figure of the paper needs, at three scales."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsam.lab.comparison.progress import Progress
from vsam.lab.methods import METHODS, all_methods
from vsam.lab.paper import numbers
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.facts import SOURCE
from vsam.lab.runs.folder import run_path
from vsam.lab.study.flatness.outcome import METHODS as METHODS_OF_FLATNESS
from vsam.lab.study.flatness.outcome import findings, flatness_of, measure_flatness, tables
from vsam.lab.study.frontier.plan import confirming_parts, rules, trial_parts
from vsam.lab.study.frontier.tables import best_trials, frontier_tables
from vsam.lab.study.norms import norms_of
from vsam.lab.study.study import Outcome, Part, Scale, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDIES"]

_RECIPES: dict[Scale, list[str]] = {
    "tiny": ["fashion-mini"],
    "small": ["cifar10-small", "cifar10-small-noisy", "cifar100-small"],
    "paper": [f"{data}-{model}" for model, data in numbers.PAIRS],
}
_STUDIED: dict[Scale, str] = {"tiny": "fashion-mini", "small": "cifar10-small-noisy", "paper": "cifar100-wrn28-10"}
_ABLATED = ("sgd", "sam", "sam-5", "vsam", "vsam-a")


def _table1(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    everything = [method.name for method in all_methods() if not method.is_beyond]
    return [_methods(_load(name, scale), everything, seeds) for name in _RECIPES[scale]]


def _ablation(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    names = ["cifar10-resnet18", "cifar100-resnet18"] if scale == "paper" else _RECIPES[scale]
    return [_methods(_load(name, scale), _ABLATED, seeds) for name in names]


def _norms(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    return [_methods(_load(name, scale), ("sam", "vsam"), seeds) for name in _RECIPES[scale]]


def _flatness(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    return [_methods(_load(name, scale), METHODS_OF_FLATNESS, seeds) for name in _RECIPES[scale]]


def _alpha(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    values = [value for value in numbers.alpha() if isinstance(value, float)]
    fast = {"gamma": numbers.ALPHA_STUDY_GAMMA} if scale == "paper" else {}
    values = values if scale == "paper" else [0.05, 0.1, 0.2, 0.3, 0.4]
    name = _STUDIED[scale]
    return [_varied(_load(name, scale), [{"alpha": value, **fast} for value in values], seeds)]


def _gamma(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    fast = {"alpha": numbers.GAMMA_STUDY_ALPHA} if scale == "paper" else {}
    names = _RECIPES[scale] if scale == "small" else [_STUDIED[scale]]
    settings = [{"gamma": value, **fast} for value in numbers.gamma()]
    return [_varied(_load(name, scale), settings, seeds) for name in names]


def _lsq(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    models = {"tiny": ["resnet8"], "small": ["resnet20", "mobilenet-25"], "paper": ["resnet18", "mobilenet"]}[scale]
    return [part for model in models for part in _quantized(scale, model, seeds, runs)]


def _convergence(scale: Scale, out: Path, progress: Progress) -> Outcome:
    from vsam.lab.study.convergence.outcome import measure_convergence

    return measure_convergence(scale, out, progress)


def _draw_setting(study: Study, rows: Sequence[Mapping[str, Any]], published: object) -> "dict[str, Figure]":
    from vsam.lab.study.figures import setting_figure

    assert study.varied is not None
    return {study.name: setting_figure(rows, study.varied)}


def _draw_norms(study: Study, rows: Sequence[Mapping[str, Any]], published: object) -> "dict[str, Figure]":
    from vsam.lab.study.figures import norms_figure

    return {study.name: norms_figure(rows)}


def _draw_nothing(study: Study, rows: Sequence[Mapping[str, Any]], published: object) -> "dict[str, Figure]":
    return {}


def _draw_frontier(study: Study, rows: Sequence[Mapping[str, Any]], published: object) -> "dict[str, Figure]":
    from vsam.lab.study.frontier.figure import frontier_figure

    return {study.name: frontier_figure(rows)}


def _draw_flatness(study: Study, rows: Sequence[Mapping[str, Any]], published: object) -> "dict[str, Figure]":
    from vsam.lab.study.flatness.figures import flatness_figures

    return flatness_figures(rows)


def _draw_convergence(study: Study, rows: Sequence[Mapping[str, Any]], published: object) -> "dict[str, Figure]":
    from vsam.lab.study.convergence.average import convergence_figure

    return {study.name: convergence_figure(rows)}


_ALL = (
    Study("table1", "The paper's methods: accuracy, second gradients and speed (table 1, figure 1)", _table1),
    Study("alpha", "What α does: samples and accuracy (the paper's study of α)", _alpha, "alpha", draw=_draw_setting),
    Study("gamma", "What γ does (the paper's study of γ)", _gamma, "gamma", draw=_draw_setting),
    Study("ablation", "Adaptive sampling and reuse apart: SAM-5, vSAM, vSAM-A (the paper's ablation)", _ablation),
    Study(
        "lsq",
        "Quantization-aware training with 4-bit weights and activations (the paper's W4A4 table)",
        _lsq,
        is_quantized=True,
    ),
    Study(
        "norms",
        "‖g‖ and ‖PSF‖ over training, and what vSAM makes of them (figure 2)",
        _norms,
        columns=norms_of,
        draw=_draw_norms,
    ),
    Study(
        "trials",
        "The settings of each rival of the frontier, chosen on held-out training images",
        trial_parts,
        draw=_draw_nothing,
        notes=best_trials,
        num_seeds=rules()["num_trial_seeds"],
    ),
    Study(
        "frontier",
        "Accuracy against price: SAM's accuracy for how little more than SGD",
        confirming_parts,
        draw=_draw_frontier,
        notes=frontier_tables,
        num_seeds=rules()["num_seeds"],
    ),
    Study(
        "flatness",
        "How sharp the minima are by every measure, whether that goes with accuracy, and PSF along a run",
        _flatness,
        columns=flatness_of,
        draw=_draw_flatness,
        after=measure_flatness,
        findings=findings,
        tables=tables,
    ),
    Study("convergence", "The average of Lemma 2 over T", draw=_draw_convergence, measure=_convergence),
)
STUDIES = {study.name: study for study in _ALL}


def _load(name: str, scale: Scale) -> Recipe:
    return load_recipe(name, tiny=scale == "tiny")


def _methods(recipe: Recipe, names: Sequence[str], seeds: int) -> Part:
    return Part(recipe.name, tuple(_with(recipe, seed, method=name) for seed in range(seeds) for name in names))


def _with(recipe: Recipe, seed: int, **changes: Any) -> Recipe:
    return recipe.updated(seed=recipe.seed + seed, **changes)


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
    """vSAM with other settings. The recipe's own get no variant, so that studies share those runs."""
    names = [f"{key}-{value:g}" for key, value in settings.items() if value != getattr(recipe.vsam, key)]
    return {"method": "vsam", "variant": "-".join(names) or None, "vsam": recipe.vsam.model_copy(update=settings)}


def _quantized(scale: Scale, model: str, seeds: int, runs: Path) -> list[Part]:
    """Full precision first, then every method from the checkpoint of its seed."""
    runs = runs.resolve()  # so that the machines of a cluster find the checkpoints from any directory
    source = {"tiny": "fashion-mini", "small": "cifar10-small", "paper": "cifar10-resnet18"}[scale]
    lsq = {"tiny": "cifar10-small-lsq", "small": "cifar10-small-lsq", "paper": f"cifar10-{model}-lsq"}[scale]
    full, quantized = _load(source, scale), _load(lsq, scale)
    common = {"model": model, "data": full.data}
    begin = [
        _with(full, seed, **common, name=f"{full.name}-{model}", method="sgd", variant="full-precision", role=SOURCE)
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
        for method in (row.name for row in METHODS if row.is_quantized)
    ]
    return [Part(begin[0].name, tuple(begin)), Part(then[0].name, tuple(then))]
