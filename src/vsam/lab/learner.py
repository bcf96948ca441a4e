"""One training step of a recipe: its network, optimizer and loss, the same way for all methods."""

import gc
import math
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from vsam import ESAM, SharpnessAware, StepRecord
from vsam.lab import models
from vsam.lab.checkpoint import load_checkpoint
from vsam.lab.data import Batch, Dataset
from vsam.lab.errors import RunError, UserError
from vsam.lab.methods.build import build_optimizer
from vsam.lab.methods.objective import build_objective
from vsam.lab.plugins import find_plugin
from vsam.lab.ranks import ALONE, Ranks, synchronise
from vsam.lab.recipes.recipe import Recipe
from vsam.quantize import quantize

__all__ = ["Learner", "Step", "build_model", "evaluate", "quantized_model"]


class Step(NamedTuple):
    """The first pass's loss and logits, and the sharpness-aware optimizer's record of the step."""

    loss: float
    logits: Tensor
    record: StepRecord | None


class Learner:
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
        self.average: AveragedModel | None = None
        if recipe.average is not None:
            follow = get_ema_multi_avg_fn(recipe.average)  # type: ignore[no-untyped-call]
            self.average = AveragedModel(self.model, multi_avg_fn=follow, use_buffers=True)
        self.forward: Any = torch.compile(self.model) if recipe.compile else self.model
        self.optimizer = build_optimizer(self.model, recipe, total_steps)
        self.objective = build_objective(self.model, recipe, dataset, ranks)
        self._trained = self.forward if ranks.size == 1 else _distributed(self.forward, recipe, device)
        self._sharpness_aware = self.optimizer if isinstance(self.optimizer, SharpnessAware) else None
        if self._sharpness_aware and recipe.norms:
            self._sharpness_aware.subscribe(lambda record: None)  # makes it measure the norms that `last` shows

    @property
    def lr(self) -> float:
        """The learning rate of the latest step."""
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def num_samples(self) -> int:
        """Second gradients so far."""
        return self._sharpness_aware.num_samples if self._sharpness_aware else 0

    @property
    def cost(self) -> float:
        """Passes per step so far."""
        return (self._sharpness_aware.cost if self._sharpness_aware else None) or 1.0

    @property
    def num_skipped(self) -> int:
        """Steps skipped so far because a gradient was not finite."""
        return self._sharpness_aware.num_skipped if self._sharpness_aware else 0

    @property
    def num_parameters(self) -> int:
        """Trained parameters, without the step sizes of quantized layers."""
        steps = ("weight_step", "activation_step")
        named = self.model.named_parameters()
        return sum(one.numel() for name, one in named if one.requires_grad and not name.endswith(steps))

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
        if self.average is not None:
            self.average.update_parameters(self.model)
        return Step(result.item(), first[0], self._sharpness_aware.last if self._sharpness_aware else None)

    def measure(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Return accuracy and loss on the test images, and those of the averaged network if there is one."""
        where: Any = (batches, self.device, self.recipe.bf16, self.ranks)
        accuracy, loss = evaluate(self.forward, *where)
        found = {"test_loss": loss, "test_accuracy": accuracy}
        if self.average is not None:
            accuracy, loss = evaluate(self.average.module, *where)
            found |= {"averaged_loss": loss, "averaged_accuracy": accuracy}
        return found

    def _part(self, batch: Batch, share: float) -> tuple[Batch, int]:
        """Return a fraction of the batch, some of it for each process, and how many samples precede this process's."""
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
        """Return everything that training changes, except the random states."""
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what `state_dict` returned."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimizer": self.optimizer, "objective": self.objective}
        return parts | ({"average": self.average} if self.average is not None else {})


def build_model(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """Build the recipe's network. A quantized one starts from the weights of a full-precision run."""
    model = models.build(recipe.model, dataset.num_classes, dataset.image_shape[0])
    if recipe.quantize is None:
        return model
    source = recipe.quantize.checkpoint
    whose = f"quantize.checkpoint must be the checkpoint.pt of a full-precision run of {recipe.model}"
    if not source:
        raise UserError(f"{whose}, or none to start from random weights: add --set quantize.checkpoint=….")
    if source != "none":
        try:
            content = load_checkpoint(Path(source), advice=f"{whose}.")
        except RunError as error:
            raise UserError(str(error)) from error
        try:
            model.load_state_dict(content["model"])
        except (RuntimeError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{whose}, but the weights in {source!r} are not those of that network.") from error
    return quantized_model(model, recipe)


def quantized_model(model: nn.Module, recipe: Recipe) -> nn.Module:
    """Return a quantization-aware copy of the model, as the recipe says."""
    assert recipe.quantize is not None
    try:
        return quantize(model, **recipe.quantize.model_dump(exclude={"checkpoint", "perturb_steps"}))
    except ValueError as error:
        raise UserError(f"quantize.{error}") from error


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[Batch], device: torch.device, bf16: bool = False, ranks: Ranks = ALONE
) -> tuple[float, float]:
    """Return accuracy in percent and mean cross entropy, the same on all processes."""
    model.eval()
    correct, loss, count = 0, 0.0, 0
    for images, labels, _ in batches:
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            logits = ranks.gather(model(images), len(labels))
        loss += float(F.cross_entropy(logits.float(), labels, reduction="sum"))
        correct += int((logits.argmax(1) == labels).sum())
        count += len(labels)
    return 100 * correct / count, loss / count


def _distributed(network: Any, recipe: Recipe, device: torch.device) -> nn.Module:
    """Return the network with gradients averaged over all processes."""
    for said in ("Grad strides do not match bucket view strides", "find_unused_parameters=True was specified"):
        warnings.filterwarnings("ignore", said, UserWarning)  # about speed; the user cannot act on them
    return nn.parallel.DistributedDataParallel(
        network,
        device_ids=[device] if device.type == "cuda" else None,
        find_unused_parameters=find_plugin("model", recipe.model) is not None,  # a user's network is unknown
    )
