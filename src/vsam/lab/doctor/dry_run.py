"""A few steps of an optimizer on a user's model, and how many weights the perturbation moved."""

from dataclasses import dataclass

import torch
from torch import Tensor

import vsam
from vsam.lab.errors import UserError
from vsam.lab.subject.subject import Subject
from vsam.parameters import norm_parameters

__all__ = ["DryRun", "dry_run"]

_STEPS = 3


@dataclass(frozen=True)
class DryRun:
    """The outcome of a dry run.

    Args:
        method: the name of the optimizer's class.
        num_steps, num_samples, num_skipped: counts.
        moved: the fraction of weights with a gradient that had another value in the second pass; None without one.
        rho: the largest radius of all groups.
    """

    method: str
    num_steps: int
    num_samples: int
    num_skipped: int
    moved: float | None
    rho: float


def dry_run(subject: Subject, optimizer: vsam.SharpnessAware) -> DryRun:
    """Take a few steps; they train the model, but only in this process."""
    if isinstance(optimizer, vsam.ESAM):
        raise UserError("esam needs per-sample losses, but the file has a batch loss. Choose another --method.")
    before = optimizer.num_samples, optimizer.num_skipped
    chosen = _perturbed(subject, optimizer)
    shares: list[float] = []
    for _ in range(_STEPS):
        batch = subject.next_batch()
        subject.clear()
        weights = [one.detach().clone() for one in chosen]
        gradients: list[Tensor | None] = []

        def closure(
            share: float = 1.0,  # a user's batch cannot be split here, so a pass on a share of it runs on all of it
            batch: object = batch,
            weights: list[Tensor] = weights,
            gradients: list[Tensor | None] = gradients,
        ) -> Tensor:
            is_first = not gradients
            if not is_first:
                shares.append(_moved(chosen, weights, gradients))
            loss: Tensor = subject.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            if is_first:
                gradients += [None if one.grad is None else one.grad.detach().clone() for one in chosen]
            return loss

        optimizer.step(closure)
    subject.clear()
    return DryRun(
        type(optimizer).__name__,
        _STEPS,
        optimizer.num_samples - before[0],
        optimizer.num_skipped - before[1],
        max(shares) if shares else None,
        max(group.get("rho", 0.0) for group in optimizer.param_groups),
    )


def _perturbed(subject: Subject, optimizer: vsam.SharpnessAware) -> list[Tensor]:
    """The parameters that the method perturbs: none of groups that opt out; for SAM-ON, only normalization layers."""
    norms = norm_parameters(subject.model)
    groups = [group for group in optimizer.param_groups if group.get("perturb", True)]
    own = [one for group in groups for one in group["params"] if one.requires_grad]
    return own if optimizer.where.only is None else [one for one in own if one in norms]


def _moved(parameters: list[Tensor], weights: list[Tensor], gradients: list[Tensor | None]) -> float:
    """The fraction of perturbed weights with a gradient whose value has changed."""
    count = moved = 0
    with torch.no_grad():
        for one, before, gradient in zip(parameters, weights, gradients, strict=True):
            if gradient is not None:
                count += int((gradient != 0).sum())
                moved += int(((one != before) & (gradient != 0)).sum())
    return moved / count if count else 0.0
