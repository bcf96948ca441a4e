"""The fraction of steps that a budget, or a target speed, allows to be sampled."""

import math

from vsam.errors import check_fraction

__all__ = ["check_budget", "default_gamma"]

_EXAMPLE = "write VSAM(base, budget=0.2, total_steps=epochs * len(loader))"


def check_budget(budget: float | None, target: str | None, total_steps: int | None, variant: str) -> float | None:
    """The fraction of steps to sample, None if neither sets it; raises on contradictions."""
    if budget is None and target is None:
        if total_steps is not None:
            raise ValueError(f"total_steps is only used with a budget: {_EXAMPLE}, or leave it out.")
        return None
    if budget is not None and target is not None:
        raise ValueError(f"budget and target set the same thing, got {budget!r} and {target!r}: give one.")
    if variant != "paper":
        raise ValueError(f"variant={variant!r} has its own law for when to sample: leave out the budget.")
    share = _share(target) if target is not None else check_fraction("budget", budget, zero=False)
    if total_steps is None:
        raise ValueError(f"A budget is spent over the whole run, so total_steps is needed: {_EXAMPLE}.")
    return share


def default_gamma(budget: float | None) -> float:
    """The default decay γ of a reused PSF: the paper's 0.7, or what suits the gaps of a budget."""
    return 0.7 if budget is None else 1 - budget / 2


def _share(target: object) -> float:
    """1 + p passes per step against SAM's 2 are a speed of 2/(1 + p)."""
    try:
        speed = float(str(target).strip().lower().removesuffix("x"))
    except ValueError:
        speed = math.nan
    if not 1 <= speed < 2:
        raise ValueError(
            f"target must be a multiple of SAM's speed from '1x' to below '2x', which is that of the base optimizer, "
            f"got {target!r}: write target='1.6x'."
        )
    return 2 / speed - 1
