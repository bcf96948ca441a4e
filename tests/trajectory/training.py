"""A small run of any network under any loss and optimizer, on which the promises of losses and layers are tried."""

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from contract_table import BASES, BATCHES, LOOPING, METHODS, generators, network, seed_everything, set_generators
from vsam.trajectory import MESALoss, SAFLoss

__all__ = ["INPUTS", "KINDS", "LABELS", "LAG", "LENGTH", "OPTIMIZERS", "PLAIN", "Training"]

NUM_BATCHES, NUM_EXAMPLES = 3, 24
LAG, START_EPOCH = 2, 3
PLAIN = NUM_BATCHES * (START_EPOCH + 1)
"""Steps up to and including the start epoch."""

LENGTH = 2 * PLAIN
"""Steps of a run, half of them under the trajectory."""

KINDS = ("saf", "mesa")
INPUTS, LABELS = (torch.cat(tensors) for tensors in zip(*BATCHES[:NUM_BATCHES], strict=True))


def _fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, fused=True)


Maker = Callable[[nn.Module, Any], torch.optim.Optimizer]
"""Make an optimizer of a network and its parameters, or groups of them."""


def _alone(base: Callable[[Any], torch.optim.Optimizer]) -> Maker:
    return lambda model, parameters: base(parameters)


def _wrapped(method: str, base: Callable[[Any], torch.optim.Optimizer]) -> Maker:
    return lambda model, parameters: METHODS[method](base(parameters), model=model)


OPTIMIZERS: dict[str, Maker] = {
    **{name: _alone(base) for name, base in BASES.items()},
    "fused": _alone(_fused),
    **{method: _wrapped(method, BASES["momentum"]) for method in LOOPING},
    "vsam-fused": _wrapped("vsam", _fused),
    "vsam-schedule-free": _wrapped("vsam", BASES["schedule-free"]),
    "looksam-5-lion": _wrapped("looksam-5", BASES["lion"]),
}


class Training:
    """A network, an optimizer and a loss, with everything that a step may change.

    Args:
        kind: of the loss, one of KINDS or "plain".
        optimizer: a name or a maker.
        model: the table's network unless given.
        groups: of parameters, all in one unless given.
    """

    def __init__(
        self,
        kind: str = "plain",
        optimizer: str | Maker = "momentum",
        model: nn.Module | None = None,
        groups: list[dict[str, Any]] | None = None,
    ) -> None:
        seed_everything(3)
        self.model = network() if model is None else model
        make = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
        self.optimizer = make(self.model, self.model.parameters() if groups is None else groups)
        self.objective: SAFLoss | MESALoss | None = None
        if kind == "saf":
            self.objective = SAFLoss(NUM_EXAMPLES, 3, LAG, weight=2.0, start_epoch=START_EPOCH)
        elif kind == "mesa":
            self.objective = MESALoss(self.model, decay=0.8, weight=4.0, start_epoch=START_EPOCH)

    def loss(self, number: int) -> Tensor:
        epoch, place = divmod(number, NUM_BATCHES)
        order = torch.randperm(NUM_EXAMPLES, generator=torch.Generator().manual_seed(epoch))
        indices = order.chunk(NUM_BATCHES)[place]
        inputs, labels = INPUTS[indices], LABELS[indices]
        logits = self.model(inputs)
        if self.objective is None:
            return functional.cross_entropy(logits, labels)
        return self.objective(logits, labels, indices if isinstance(self.objective, SAFLoss) else inputs, epoch)

    def step(self, number: int) -> None:
        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = self.loss(number)
            loss.backward()
            return loss

        self.optimizer.step(closure)
        if isinstance(self.objective, MESALoss):
            self.objective.update()

    def go(self, first: int = 0, last: int = LENGTH) -> "Training":
        for number in range(first, last):
            self.step(number)
        return self

    def everything(self) -> dict[str, Any]:
        """A copy of all that a step may change."""
        return copy.deepcopy({**self._states(), "generators": generators()})

    def save(self) -> bytes:
        file = io.BytesIO()
        torch.save({**self._states(), "generators": generators()}, file)
        return file.getvalue()

    def load(self, saved: bytes) -> "Training":
        entries = torch.load(io.BytesIO(saved), weights_only=True)
        self.model.load_state_dict(entries["model"])
        self.optimizer.load_state_dict(entries["optimizer"])
        if self.objective is not None:
            self.objective.load_state_dict(entries["objective"])
        set_generators(entries["generators"])
        return self

    def _states(self) -> dict[str, Any]:
        objective = {} if self.objective is None else {"objective": self.objective.state_dict()}
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), **objective}
