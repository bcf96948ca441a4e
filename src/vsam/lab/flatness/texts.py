"""Names of runs and measures, and number formats, for tables, figures and the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from vsam.lab.runs.flatness import Opened
from vsam.sharpness import Sharpness

__all__ = ["MEASURES", "cell", "estimate_of", "names_of", "setting_of"]

MEASURES = {
    "top_eigenvalues": "Top eigenvalue",
    "trace": "Trace",
    "batch_ascent": "SAM’s sharpness",
    "ascent": "Ascent, all images",
    "worst": "Worst in the ball",
    "random": "Random directions",
}


def names_of(runs: Sequence[Opened]) -> list[str]:
    """A short name per run: its method, plus whatever distinguishes it from the others."""
    for form in ("{label}", "{label}, seed {seed}", "{recipe}: {label}, seed {seed}", "{folder}"):
        names = [
            form.format(label=r.recipe.label, seed=r.recipe.seed, recipe=r.recipe.name, folder=r.path.parent)
            for r in runs
        ]
        if len(set(names)) == len(names):
            return names
    return [f"{run.path}" for run in runs]


def estimate_of(found: Sharpness, measure: str) -> Any:
    """The estimate of a measure; for eigenvalues, the first."""
    one = getattr(found, measure)
    return one[0] if measure == "top_eigenvalues" and one is not None else one


def setting_of(found: Mapping[str, Sharpness]) -> str:
    """What it was measured on, in one sentence."""
    one = next(iter(found.values()))
    how = "evaluation" if one.mode == "eval" else "training"
    units = ", in units of the weights (adaptive)" if one.adaptive else ""
    return (
        f"On {one.num_samples:,} training images as they are stored, at rho = {one.rho:g}{units}, m = {one.m:g}; "
        f"BatchNorm and dropout as in {how}."
    )


def cell(estimate: Any) -> str:
    """A number with its error, marked if it has not converged."""
    if estimate is None:
        return "–"
    return f"{estimate.value:.3g} ± {estimate.error:.2g}{'' if estimate.converged else '*'}"
