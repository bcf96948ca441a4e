"""Find the radius of SAM's perturbation that raises the loss by a given fraction."""

import math
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from torch import nn

from vsam.checks import check_not_negative, check_positive
from vsam.sharpness.objective import Loss, Objective
from vsam.sharpness.session import Mode, check_batches, check_mode, untouched, unwrapped

Point = tuple[float, float]
"""A radius, and by which fraction it raises the loss."""

_FIRST, _MOST_TRIES = 0.05, 30


def radius(
    model: nn.Module,
    loss: Loss,
    batches: Iterable[Any],
    rise: float = 0.05,
    *,
    mode: Mode = "train",
    adaptive: bool = False,
    eta: float = 0.01,
    tolerance: float = 1e-2,
) -> float:
    """Return the ρ at which SAM's perturbation raises the mean loss over batches by a fraction, at the current weights.

    Each batch is perturbed along its own gradient, as in training. The model stays as it was.

        mean L(w + ρ g/‖g‖) = (1 + rise) · mean L(w)

    Args:
        model: the network. DDP modules use the batches of all ranks, compiled ones run uncompiled.
        loss: `loss(model, batch)` returns the batch's mean loss and must call the model that it is passed.
        batches: a list or DataLoader, iterated once per radius, with the same shuffling and dropout each time. A few
            batches of the size that you train with are enough.
        rise: above 0, the fraction.
        mode: "train" or "eval" behaviour of BatchNorm and dropout, or "unchanged".
        adaptive: find the radius of ASAM, whose distances are in units of |w| + eta.
        eta: for the adaptive form.
        tolerance: relative, of the rise.

    Cost: two forward passes and a backward pass over all batches per radius, of which three to seven are usual.

    Example:
        >>> def loss(model, batch):
        ...     return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        >>> rho = radius(model, loss, [(inputs, targets)], rise=0.05)
        >>> rho > 0
        True
    """
    rise, tolerance = check_positive("rise", rise), check_positive("tolerance", tolerance)
    unit = check_not_negative("eta", eta) if adaptive else None
    check_batches(batches)
    inner = unwrapped(model)
    with untouched(inner, batches, check_mode(mode)) as rewind:
        objective, starts = Objective(model, loss, batches, rewind, eta=unit), list[float]()

        def rise_at(rho: float) -> float:
            before, after = (losses.mean for losses in objective.each_batch(rho))
            if not 0 < before < math.inf:
                raise ValueError(f"The mean loss must be finite and above zero for a fraction of it, got {before:g}.")
            starts.append(before)
            if abs(before - starts[0]) > tolerance * rise * before:
                raise ValueError(
                    f"The mean loss at the same weights was {starts[0]:g} and then {before:g}: draw random numbers "
                    "from the global generators of torch, NumPy or random, which are rewound, not from another one."
                )
            found = after / before - 1
            return found if math.isfinite(found) else math.inf

        return _solve(rise, tolerance, rise_at, *_bracket(rise, rise_at))


def _bracket(goal: float, rise_at: Callable[[float], float]) -> tuple[Point, Point]:
    """Return a radius that raises the loss by less than the goal, and a larger one that raises it by at least that."""
    point = highest = _FIRST, rise_at(_FIRST)
    for _ in range(_MOST_TRIES):
        rho, rise = point
        factor = 2.0 if rise < goal else min(0.5, goal / rise) if rise < math.inf else 0.1
        last, point = point, (rho * factor, rise_at(rho * factor))
        highest = max(highest, point, key=itemgetter(1))
        if (last[1] < goal) != (point[1] < goal):
            low, high = sorted((last, point))
            return low, high
    if point[1] >= goal:
        raise ValueError(f"The loss rises by {point[1]:.0%} even at rho={point[0]:.2g}, so its gradient is not finite.")
    if highest[1] == 0:
        raise ValueError("The gradient is zero at these weights, so there is no direction in which the loss rises.")
    raise ValueError(
        f"The loss rises by at most {highest[1]:.2%}, at rho={highest[0]:.2g}, and not by rise={goal:g}: ask for less."
    )


def _solve(goal: float, tolerance: float, rise_at: Callable[[float], float], low: Point, high: Point) -> float:
    """Shrink a bracket: secants of the logarithms, in which a power of ρ is straight, and bisections at every third."""
    for turn in range(_MOST_TRIES):
        for rho, rise in (low, high):
            if abs(rise - goal) <= tolerance * goal:
                return rho
        if high[0] <= low[0] * (1 + 1e-12):
            break
        middle = math.sqrt(low[0] * high[0])
        if turn % 3 < 2 and low[1] > 0 and high[1] < math.inf:
            power = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
            middle = low[0] * (goal / low[1]) ** (1 / power)
        point = middle, rise_at(middle)
        low, high = (point, high) if point[1] < goal else (low, point)
    raise ValueError(
        f"At rho={high[0]:.4g} the rise of the loss jumps from {low[1]:.4g} to {high[1]:.4g}: pass a larger tolerance, "
        "or a model and batches in double precision."
    )
