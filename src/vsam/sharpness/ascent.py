"""How much the loss rises at a distance ρ: along the gradient, at the worst point found, on average."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from vsam.sharpness.hessian import Report
from vsam.sharpness.losses import Losses
from vsam.sharpness.objective import Objective
from vsam.sharpness.results import Estimate, mean_estimate

__all__ = ["ascent", "batch_ascent", "random", "worst"]

_SMALLEST_STEP = 1e-3
"""As a fraction of the radius: the ascent stops below it."""


def ascent(objective: Objective, rho: float, start: Losses, gradient: Tensor) -> Estimate:
    """L(w + ρ g/‖g‖) − L(w) with the gradient over all batches."""
    return start.rise(objective.value(on_sphere(gradient, rho)), objective.epsilon)


def batch_ascent(objective: Objective, rho: float) -> Estimate:
    """The same per batch along its own gradient, averaged: what SAM minimises."""
    before, after = objective.each_batch(rho)
    return before.rise(after, objective.epsilon)


def worst(
    objective: Objective,
    rho: float,
    start: Losses,
    starts: Iterable[Tensor],
    max_steps: int,
    tolerance: float,
    report: Report,
) -> Estimate:
    """The largest rise in the ball ‖e‖ ≤ ρ that projected ascent finds, from the best of several starts.

    The step is halved when the loss does not rise. The error is the gap ρ‖g‖ − ⟨g, e⟩ at the end: how much the linear
    model still promises, zero at a stationary point. The loss is not concave, so the value is a lower bound.
    """
    best = max((on_sphere(direction, rho) for direction in starts), key=lambda e: _number(objective.value(e).mean))
    losses, gradient = objective.gradient(best)
    report(1, max_steps + 1)
    step, done = 1.0, 0
    while done < max_steps and _gap(gradient, best, rho) > tolerance * abs(losses.mean - start.mean) and rho > 0:
        candidate = _into_ball(best + on_sphere(gradient, step * rho), rho)
        there, slope = objective.gradient(candidate)
        done += 1
        report(done + 1, max_steps + 1)
        if there.mean > losses.mean:
            best, losses, gradient = candidate, there, slope
        else:
            step /= 2
            if step < _SMALLEST_STEP:
                break
    value, gap = losses.mean - start.mean, _gap(gradient, best, rho)
    return Estimate(value, gap, math.isfinite(value) and gap <= tolerance * abs(value), "gap of the linear model")


def random(
    objective: Objective,
    rho: float,
    start: Losses,
    num_pairs: int,
    tolerance: float,
    generator: torch.Generator,
    report: Report,
) -> Estimate:
    """The mean rise at a distance ρ in random directions, in opposite pairs so that the slope cancels."""
    rises = []
    for done in range(1, num_pairs + 1):
        offset = on_sphere(objective.random(generator), rho)
        there = [objective.value(sign * offset).mean for sign in (1, -1)]
        rises.append(sum(there) / 2 - start.mean)
        report(done, num_pairs)
    return mean_estimate(torch.tensor(rises, dtype=torch.float64), tolerance, "pairs of directions")


def on_sphere(direction: Tensor, rho: float) -> Tensor:
    """The direction at length ρ, as SAM takes it."""
    factor: float = rho / (direction.norm().item() + 1e-12)
    return direction * factor


def _into_ball(offset: Tensor, rho: float) -> Tensor:
    length = offset.norm().item()
    return on_sphere(offset, rho) if length > rho else offset


def _gap(gradient: Tensor, offset: Tensor, rho: float) -> float:
    gap: float = rho * gradient.norm().item() - torch.dot(gradient, offset).item()
    return gap


def _number(loss: float) -> float:
    return -math.inf if math.isnan(loss) else loss
