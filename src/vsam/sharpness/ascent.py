"""The rise of the loss at a distance ρ: along the gradient, at the worst point found, on average."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from vsam.sharpness.objective import Losses, Objective
from vsam.sharpness.results import Estimate, mean_estimate

_SMALLEST_STEP = 1e-3
"""As a fraction of the radius: the ascent stops below it."""


def along_gradients(objective: Objective, rho: float, start: Losses, gradient: Tensor) -> tuple[Estimate, Estimate]:
    """Return L(w + ρ g/‖g‖) − L(w), with the gradient over all batches and averaged with each batch's own.

    SAM minimises the second.
    """
    along = objective.rise(start, objective.value(on_sphere(gradient, rho)))
    objective.report(1, 2)
    each = objective.rise(*objective.each_batch(rho))
    objective.report(2, 2)
    return along, each


def worst(
    objective: Objective, rho: float, start: Losses, starts: Iterable[Tensor], max_steps: int, tolerance: float
) -> Estimate:
    """Return the largest rise in the ball ‖e‖ ≤ ρ that projected ascent finds, from the best of several starts.

    The starts also include a random direction and the weights themselves. The step is halved when the loss does not
    rise. The error is the gap ρ‖g‖ − ⟨g, e⟩ at the end, by which the linear model still promises to rise. It is zero
    at a stationary point. The loss is not concave, so the value is a lower bound.
    """
    drawn = objective.random()
    offsets = (on_sphere(direction, rho) for direction in (*starts, drawn, torch.zeros_like(drawn)))
    best = max(offsets, key=lambda offset: _finite(objective.value(offset).mean))
    losses, gradient = objective.gradient(best)
    objective.report(1, max_steps + 1)
    step, done, gap = 1.0, 0, _gap(gradient, best, rho)
    while done < max_steps and step >= _SMALLEST_STEP and gap > tolerance * abs(losses.mean - start.mean) and rho > 0:
        candidate = best + on_sphere(gradient, step * rho)
        candidate = on_sphere(candidate, rho) if candidate.norm().item() > rho else candidate
        there, slope = objective.gradient(candidate)
        done += 1
        objective.report(done + 1, max_steps + 1)
        if there.mean > losses.mean:
            best, losses, gradient, gap = candidate, there, slope, _gap(slope, candidate, rho)
        else:
            step /= 2
    value = losses.mean - start.mean
    return Estimate(value, gap, math.isfinite(value) and gap <= tolerance * abs(value), "gap of the linear model")


def random(objective: Objective, rho: float, start: Losses, num_pairs: int, tolerance: float) -> Estimate:
    """Return the mean rise at a distance ρ in random directions, in opposite pairs so that the slope cancels."""
    rises = []
    for done in range(1, num_pairs + 1):
        offset = on_sphere(objective.random(), rho)
        rises.append((objective.value(offset).mean + objective.value(-offset).mean) / 2 - start.mean)
        objective.report(done, num_pairs)
    return mean_estimate(torch.tensor(rises, dtype=torch.float64), tolerance, "pairs of directions")


def on_sphere(direction: Tensor, rho: float) -> Tensor:
    """Return the direction at length ρ, as SAM takes it."""
    factor: float = rho / (direction.norm().item() + 1e-12)
    return direction * factor


def _gap(gradient: Tensor, offset: Tensor, rho: float) -> float:
    gap: float = rho * gradient.norm().item() - torch.dot(gradient, offset).item()
    return gap


def _finite(loss: float) -> float:
    return -math.inf if math.isnan(loss) else loss
