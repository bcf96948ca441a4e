"""A network, its loss and some batches, with passes that explain their failures."""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam import SharpnessAware
from vsam.lab.errors import RunError, UserError

__all__ = ["Subject", "explained", "quiet_output"]


@dataclass
class Subject:
    """What is trained.

    Args:
        name: of the recipe or the file.
        model: the network.
        loss: computes the loss of a batch, without `backward`.
        batches: some, cycled through.
        base: the base optimizer.
        base_code: the line that gives it the name `base`, for code to paste; "" if none is needed.
        optimizer: the user's own sharpness-aware optimizer, if any.
        rho: the radius to suggest.
        gamma: the decay to use with a budget, if the user has set it.
        total_steps: of the run, as code.
        file: that defines the loss, for errors; None for a recipe.
        names: all names that a user's file defines.
    """

    name: str
    model: nn.Module
    loss: Callable[[Any], Any]
    batches: Sequence[Any]
    base: Optimizer
    base_code: str
    optimizer: SharpnessAware | None = None
    rho: float = 0.05
    gamma: float | None = None
    total_steps: str = "epochs * len(loader)"
    file: str | None = None
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._turn = cycle(self.batches)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.parameters[0].device

    @property
    def parameters(self) -> list[Tensor]:
        """What the base optimizer trains."""
        return [one for group in self.base.param_groups for one in group["params"] if one.requires_grad]

    @property
    def num_bytes(self) -> int:
        """Of these parameters: the unit for memory."""
        return sum(one.numel() * one.element_size() for one in self.parameters)

    def next_batch(self) -> Any:
        """The next batch, cycling."""
        return next(self._turn)

    def compute(self, batch: Any) -> Tensor:
        """The loss of a batch, which must be a single number that depends on the parameters."""
        where = self.file or self.name
        with explained(self.file, "loss failed"), quiet_output():
            value = self.loss(batch)
        if not isinstance(value, Tensor):
            raise UserError(f"{where}: loss must return a tensor, got {type(value).__name__}.")
        if value.numel() != 1:
            shape = tuple(value.shape)
            raise UserError(f"{where}: loss must return one number, got shape {shape}. Return its mean: .mean().")
        if torch.is_grad_enabled() and not value.requires_grad:
            raise UserError(
                f"{where}: loss has no gradient. Compute it from the model's output, without torch.no_grad(), "
                ".detach() or .item(), and keep requires_grad=True for some parameters."
            )
        if torch.is_grad_enabled() and any(one.grad is not None for one in self.parameters):
            raise UserError(f"{where}: loss must not call backward(): only return the loss.")
        return value

    def backward(self, loss: Tensor) -> None:
        """The gradients of a loss."""
        with explained(self.file, "backward failed"), quiet_output():
            loss.backward()  # type: ignore[no-untyped-call]

    def clear(self) -> None:
        """Clear all gradients."""
        for one in [*self.model.parameters(), *self.parameters]:
            one.grad = None

    def closure(self, batch: Any) -> Callable[[], Tensor]:
        """A closure for an optimizer's `step`, without anything that would add time."""

        def run() -> Tensor:
            loss: Tensor = self.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        return run


@contextmanager
def quiet_output() -> Iterator[None]:
    """Redirect what a user's file prints to stderr, so that stdout has only JSON."""
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def explained(file: str | None, what: str) -> Iterator[None]:
    """Turn an exception into an error that names the line of the user's file."""
    try:
        yield
    except (UserError, RunError):
        raise
    except (Exception, SystemExit) as error:
        if file is None:
            raise
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
        where = f" on line {lines[-1]}" if lines else ""
        reason = str(error).strip() or "no message"
        raise UserError(f"{file}: {what}{where}: {type(error).__name__}: {reason}") from error
