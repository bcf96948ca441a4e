"""How sharp the minimum of each run is, by every measure, stored with the run."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from vsam.lab.files import read_regular, write_atomically
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.flatness import open_trained
from vsam.sharpness import Sharpness

__all__ = ["FILE", "MEASURES", "measure_minimum", "read_minimum"]

FILE = "flatness.json"
ADAPTIVE_RHO = 0.5
MEASURES = {
    "top_eigenvalue": "top eigenvalue",
    "trace": "trace",
    "batch_ascent": "SAM's sharpness",
    "ascent": "ascent, all images",
    "worst": "worst in the ball",
    "random": "random directions",
    "adaptive_top_eigenvalue": "adaptive top eigenvalue",
    "adaptive_batch_ascent": "adaptive SAM's sharpness",
    "adaptive_worst": "adaptive worst",
    "adaptive_random": "adaptive random",
}
"""The measures of every minimum, and their names in tables and figures."""

_SIZES = {"tiny": (32, 3, 2), "small": (512, 30, 8), "paper": (4096, 50, 16)}  # images, Lanczos iterations, probes


def measure_minimum(run: Path, recipe: Recipe, scale: str, data_dir: Path | None, device: str | None) -> dict[str, Any]:
    """Measure a run's final weights, or read earlier measurements with the same settings.

    Args:
        run: its folder.
        recipe: its settings; radius and batch size are those it was trained with.
        scale: of the study, which decides on how many training images.
        data_dir, device: as for training.
    """
    samples, iterations, probes = _SIZES[scale]
    shared: dict[str, Any] = {"max_iterations": iterations, "num_probes": probes, "num_directions": max(2, probes // 2)}
    settings = {"samples": samples, "batch": recipe.batch, "rho": recipe.rho, "adaptive_rho": ADAPTIVE_RHO, **shared}
    checkpoint = run / "checkpoint.pt"
    before = read_minimum(run)
    proof = hashlib.sha256(read_regular(checkpoint)).hexdigest() if checkpoint.exists() else None
    if before is not None and before["settings"] == settings and before["checkpoint"] == proof:
        return before
    opened = open_trained(checkpoint, samples, recipe.batch, data_dir, device)
    plain = opened.measure(rho=recipe.rho, **shared).found
    what = ("top_eigenvalues", "ascent", "worst", "random")
    adaptive = opened.measure(rho=ADAPTIVE_RHO, adaptive=True, what=what, **shared).found
    found = {
        "settings": settings,
        "checkpoint": proof,
        "loss": plain.loss,
        "gradient_norm": plain.gradient_norm,
        "measures": _estimates(plain) | {f"adaptive_{name}": one for name, one in _estimates(adaptive).items()},
    }
    write_atomically(run / FILE, json.dumps(found, indent=1) + "\n")
    return found


def read_minimum(run: Path) -> dict[str, Any] | None:
    """Earlier measurements of a run; None if there are none, or none that can be used."""
    try:
        found = json.loads(read_regular(run / FILE))
    except (OSError, ValueError, RecursionError):
        return None
    keys = {"settings", "checkpoint", "loss", "gradient_norm", "measures"}
    if not isinstance(found, dict) or not keys <= found.keys():
        return None
    return found if isinstance(found["measures"], dict) and found["measures"].keys() >= MEASURES.keys() else None


def _estimates(found: Sharpness) -> dict[str, dict[str, Any]]:
    names = ("trace", "batch_ascent", "ascent", "worst", "random")
    estimates = {name: getattr(found, name) for name in names}
    assert found.top_eigenvalues is not None
    estimates["top_eigenvalue"] = found.top_eigenvalues[0]
    return {
        name: {
            "value": one.value,
            "error": one.error if math.isfinite(one.error) else None,
            "converged": one.converged,
        }
        for name, one in estimates.items()
        if one is not None
    }
