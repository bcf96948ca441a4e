"""A network, its loss and some batches, and passes over them whose failures are explained."""

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
        batches: some, used in turn.
        base: the base optimizer.
        base_code: the line that makes it, for code to paste.
        optimizer: a sharpness-aware optimizer that the user has made, if any.
        rho: the radius to suggest.
        total_steps: of the run, as code.
        file: where the loss is written, for errors; None for a recipe.
        names: everything that a user's file defines.
    """

    name: str
    model: nn.Module
    loss: Callable[[Any], Any]
    batches: Sequence[Any]
    base: Optimizer
    base_code: str
    optimizer: SharpnessAware | None = None
    rho: float = 0.05
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
        """Of these parameters: the unit in which memory is told."""
        return sum(one.numel() * one.element_size() for one in self.parameters)

    def next_batch(self) -> Any:
        """The batches in turn."""
        return next(self._turn)

    def compute(self, batch: Any) -> Tensor:
        """The loss of a batch, which must be one finite number that depends on the parameters."""
        where = self.file or self.name
        with explained(self.file, "loss fails"), quiet_output():
            value = self.loss(batch)
        if not isinstance(value, Tensor):
            raise UserError(f"{where}: loss must return a tensor, got {type(value).__name__}.")
        if value.numel() != 1:
            shape = tuple(value.shape)
            raise UserError(f"{where}: loss must return one number, got the shape {shape}: return its mean, .mean().")
        if torch.is_grad_enabled() and not value.requires_grad:
            raise UserError(
                f"{where}: loss has no gradient: compute it from the model's output, without torch.no_grad(), "
                ".detach() and .item(), and leave some parameters requires_grad=True."
            )
        if torch.is_grad_enabled() and any(one.grad is not None for one in self.parameters):
            raise UserError(f"{where}: loss must not call backward(), which is done for it: return the loss alone.")
        return value

    def backward(self, loss: Tensor) -> None:
        """The gradients of a loss."""
        with explained(self.file, "backward of the loss fails"), quiet_output():
            loss.backward()  # type: ignore[no-untyped-call]

    def clear(self) -> None:
        """Take all gradients away."""
        for one in [*self.model.parameters(), *self.parameters]:
            one.grad = None

    def closure(self, batch: Any) -> Callable[[], Tensor]:
        """What an optimizer's `step` takes, with nothing around it that would take time."""

        def run() -> Tensor:
            loss: Tensor = self.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        return run


@contextmanager
def quiet_output() -> Iterator[None]:
    """What a user's file prints goes to the standard error, so that JSON on the standard output stays alone."""
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def explained(file: str | None, what: str) -> Iterator[None]:
    """Say in which line of a user's file something has failed."""
    try:
        yield
    except (UserError, RunError):
        raise
    except (Exception, SystemExit) as error:
        if file is None:
            raise
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
        where = f" in line {lines[-1]}" if lines else ""
        reason = str(error).strip() or "no message"
        raise UserError(f"{file}: {what}{where}: {type(error).__name__}: {reason}") from error
