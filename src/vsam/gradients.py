"""The gradients that a pass left behind: which parameters have one, and which ones cannot be used."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from vsam.errors import CLOSURE_EXAMPLE

__all__ = ["with_gradient"]


def with_gradient(parameters: Iterable[Tensor], name: Callable[[Tensor], str], remedy: str) -> list[Tensor]:
    """Return the parameters that have a gradient; frozen ones lose theirs.

    Args:
        parameters: all that are trained.
        name: what a parameter is called in an error.
        remedy: what to do if none has a gradient, as the beginning of a sentence.
    """
    found = []
    for parameter in parameters:
        if not parameter.requires_grad:
            parameter.grad = None
        if parameter.grad is not None:
            _check(parameter.grad, name, parameter)
            found.append(parameter)
    if not found:
        raise RuntimeError(f"No parameter has a gradient. {remedy}, or in the closure:{CLOSURE_EXAMPLE}")
    return found


def _check(gradient: Tensor, name: Callable[[Tensor], str], parameter: Tensor) -> None:
    if gradient.layout is not torch.strided:
        raise RuntimeError(
            f"{name(parameter)} has a sparse gradient, and the perturbation needs dense ones: "
            "make the layer with sparse=False."
        )
    if gradient.is_complex():
        raise RuntimeError(f"{name(parameter)} is complex, which is not supported: split it in two.")
