"""Measurements and slices that were never measured, for figures and pages."""

from pathlib import Path

import torch

from lab.helpers import quick_recipe
from vsam.lab.sharpness import Measured, Slices
from vsam.sharpness import Density, Eigenvalues, Estimate, Landscape, Sharpness


def estimate(value, converged=True, error=0.1):
    return Estimate(value, error, converged, "residual")


def made_sharpness(top=3.0, converged=True, **changes):
    values = torch.tensor([top], dtype=torch.float64)
    tops = Eigenvalues(values, torch.tensor([0.5], dtype=torch.float64), converged, (converged,), 7)
    nodes = torch.linspace(-0.1, top, 12, dtype=torch.float64).reshape(2, 6)
    numbers = {name: estimate(0.1 * top) for name in ("ascent", "batch_ascent", "worst", "random")}
    fields = {
        "trace": estimate(10 * top, converged=False),
        "density": Density(nodes, torch.full((2, 6), 1 / 6, dtype=torch.float64), False),
    }
    settings = {"rho": 0.05, "mode": "eval", "adaptive": False, "num_parameters": 9, "num_samples": 64}
    whole = {"loss": 0.25, "gradient_norm": 0.1, "num_batches": 2, "top_eigenvalues": tops}
    return Sharpness(**(settings | whole | numbers | fields | changes))


def made_row(name="sam", seed=0, **changes):
    path = Path("runs") / name / f"seed-{seed}" / "checkpoint.pt"
    return Measured(path, quick_recipe(f"method={name}", f"seed={seed}"), 12, made_sharpness(**changes))


def made_plane(steepness=1.0, points=7):
    axis = torch.linspace(-1, 1, points, dtype=torch.float64)
    losses = 0.1 + steepness * (axis.reshape(-1, 1) ** 2 + 2 * axis**2)
    return Landscape((axis, axis), losses, "eval", "random directions, filter-normalised")


def made_slices(names):
    planes = {name: made_plane(1.0 + i) for i, name in enumerate(names)}
    lines = {name: Landscape(one.axes[:1], one.losses[:, 3], "eval", one.kind) for name, one in planes.items()}
    return Slices(lines, planes, {name: lines[name] for name in names[1:]})
