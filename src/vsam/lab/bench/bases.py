"""The base optimizers that every method wraps."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["BASES", "LEARNING_RATE", "Base"]

LEARNING_RATE = 1e-9
"""So small that the weights hardly change: no unit dies, and no buffer decays into slow subnormal numbers."""


@dataclass(frozen=True)
class Base:
    """A torch optimizer and its options.

    Args:
        name: on the command line.
        kind: the class, which pytorch_optimizer constructs itself.
        options: constructor arguments.
    """

    name: str
    kind: type[Optimizer]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_fused(self) -> bool:
        """Whether one kernel computes the whole step."""
        return bool(self.options.get("fused"))

    def make(self, parameters: Iterable[Tensor]) -> Optimizer:
        """Construct it."""
        return self.kind(parameters, **self.options)

    def with_foreach(self) -> "Base":
        """The same base with `foreach=True`, which pytorch_optimizer's SAM passes on to it."""
        return replace(self, name=f"{self.name}-foreach", options={**self.options, "foreach": True})


_SGD: dict[str, Any] = {"lr": LEARNING_RATE, "momentum": 0.9}
_ADAMW: dict[str, Any] = {"lr": LEARNING_RATE}

BASES = {
    base.name: base
    for base in (
        Base("sgd", torch.optim.SGD, _SGD),
        Base("sgd-fused", torch.optim.SGD, {**_SGD, "fused": True}),
        Base("adamw", torch.optim.AdamW, _ADAMW),
        Base("adamw-fused", torch.optim.AdamW, {**_ADAMW, "fused": True}),
    )
}
