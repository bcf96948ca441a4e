"""What a run trains, step by step: the network, its optimizer and its loss, the same way for all methods."""

import gc
import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vsam import ESAM, SharpnessAware, StepRecord
from vsam.lab.data import Batch, Dataset
from vsam.lab.methods.build import build_objective, build_optimizer
from vsam.lab.own import find_own
from vsam.lab.ranks import ALONE, Ranks
from vsam.lab.ranks.batch_norm import synchronise
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.network import build_model

__all__ = ["Step", "Training"]

_PARTS = ("model", "optimizer", "objective")


class Step(NamedTuple):
    """The first pass's loss and logits, and the sharpness-aware optimizer's record of the step."""

    loss: float
    logits: Tensor
    record: StepRecord | None


class Training:
    """Network, optimizer and loss, as the recipe says.

    Args:
        recipe: what to train.
        dataset: on what.
        device: where.
        total_steps: of the complete run, over which the learning rate decays.
        ranks: the processes that train it together, each on its part of a batch. All compute the loss of the full
            batch, from the predictions of all, so that losses and methods need not know about them.
    """

    def __init__(
        self, recipe: Recipe, dataset: Dataset, device: torch.device, total_steps: int, ranks: Ranks = ALONE
    ) -> None:
        self.recipe, self.device, self.total_steps, self.ranks = recipe, device, total_steps, ranks
        self.model: nn.Module = build_model(recipe, dataset).to(device)
        if ranks.size > 1:
            self.model = synchronise(self.model, device)
        if recipe.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.forward: Any = torch.compile(self.model) if recipe.compile else self.model
        self.optimizer = build_optimizer(self.model, recipe, total_steps)
        self.objective = build_objective(self.model, recipe, dataset, ranks)
        self._trained = self.forward if ranks.size == 1 else _distributed(self.forward, recipe, device)
        self._sharpness_aware = self.optimizer if isinstance(self.optimizer, SharpnessAware) else None
        if self._sharpness_aware and recipe.norms:
            self._sharpness_aware.subscribe(lambda record: None)  # makes it measure the norms that `last` shows

    @property
    def num_samples(self) -> int:
        """Second gradients so far."""
        return self._sharpness_aware.num_samples if self._sharpness_aware else 0

    @property
    def price(self) -> float:
        """Passes per step so far."""
        return (self._sharpness_aware.price if self._sharpness_aware else None) or 1.0

    @property
    def num_skipped(self) -> int:
        """Steps skipped so far because a gradient was not finite."""
        return self._sharpness_aware.num_skipped if self._sharpness_aware else 0

    def step(self, batch: Batch, epoch: int, done: int) -> Step:
        """Train on a batch, `done` steps after the start."""
        rate = 0.5 * (1 + math.cos(math.pi * done / self.total_steps)) if self.recipe.schedule == "cosine" else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr * rate
        first: list[Tensor] = []

        def forward(images: Tensor, count: int, start: int | None = None) -> Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.bf16):
                logits = self.ranks.gather(self._trained(images), count, start)
            if not first and count == len(batch.labels):
                first.append(logits.detach())
            return logits

        def closure(share: float = 1.0) -> Tensor:
            self.optimizer.zero_grad()
            part, start = (batch, None) if share == 1 else self._part(batch, share)
            loss = self.objective(forward(part.images, len(part.labels), start), part, epoch)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        def losses(keep: Tensor | None = None) -> Tensor:
            if keep is None:
                return self.objective.per_sample(forward(batch.images, len(batch.labels)), batch.labels)
            own, start = self.ranks.own_part(keep, len(batch.labels))
            return self.objective.per_sample(forward(batch.images[own], len(keep), start), batch.labels[keep])

        self.model.train()
        result: Any = self.optimizer.step(losses if isinstance(self.optimizer, ESAM) else closure)  # type: ignore[arg-type]
        self.objective.after_step()
        return Step(result.item(), first[0], self._sharpness_aware.last if self._sharpness_aware else None)

    def _part(self, batch: Batch, share: float) -> tuple[Batch, int]:
        """A fraction of the batch, spread so that each process has some, and how many precede this process's."""
        total = len(batch.labels)
        count = math.ceil(share * total)
        keep = torch.arange(count, device=batch.labels.device) * total // count
        own, start = self.ranks.own_part(keep, total)
        return Batch(batch.images[own], batch.labels[keep], batch.indices[keep]), start

    def release(self) -> None:
        """Drop the DDP module: a process in which it outlives its process group may never exit."""
        if self._trained is not self.forward:
            self._trained = self.forward
            gc.collect()  # it is part of a reference cycle

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes, except the random states."""
        return {name: getattr(self, name).state_dict() for name in _PARTS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what `state_dict` returned."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])


def _distributed(network: Any, recipe: Recipe, device: torch.device) -> nn.Module:
    """The network with gradients averaged over all processes."""
    for said in ("Grad strides do not match bucket view strides", "find_unused_parameters=True was specified"):
        warnings.filterwarnings("ignore", said, UserWarning)  # about speed; the user cannot act on them
    return nn.parallel.DistributedDataParallel(
        network,
        device_ids=[device] if device.type == "cuda" else None,
        find_unused_parameters=find_own("model", recipe.model) is not None,  # a user's network is unknown
    )
