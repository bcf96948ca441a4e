"""The loss of a run: cross entropy, or a trajectory loss around it."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from vsam import MESALoss, SAFLoss
from vsam.lab.data import Batch, Dataset
from vsam.lab.errors import UserError
from vsam.lab.recipes.recipe import Recipe

__all__ = ["Objective"]


class Objective:
    """What a run minimises, and whatever that remembers.

    Args:
        recipe: its method decides; SAF and MESA are losses, the others are optimizers.
        model: the network in training.
        dataset: whose size SAF's memory needs.
    """

    def __init__(self, recipe: Recipe, model: nn.Module, dataset: Dataset) -> None:
        # The recipe's ε leaves 1 − ε on the target, as in the authors' program; torch's leaves 1 − ε + ε/C.
        self._smoothing = min(1.0, recipe.label_smoothing * dataset.num_classes / max(1, dataset.num_classes - 1))
        self._saf: SAFLoss | None = None
        self._mesa: MESALoss | None = None
        try:
            if recipe.method == "saf":
                count, classes = len(dataset.train_images), dataset.num_classes
                self._saf = SAFLoss(count, classes, label_smoothing=self._smoothing, **recipe.saf.model_dump())
                self._saf.to(dataset.train_images.device)
            elif recipe.method == "mesa":
                self._mesa = MESALoss(model, label_smoothing=self._smoothing, **recipe.mesa.model_dump())
        except (ValueError, RuntimeError) as error:  # the latter from SAF, whose memory would not fit
            raise UserError(f"{recipe.method}: {error}") from error

    def __call__(self, logits: Tensor, batch: Batch, epoch: int) -> Tensor:
        """The mean loss of the batch."""
        if self._saf is not None:
            return self._saf(logits, batch.labels, batch.indices, epoch)  # type: ignore[no-any-return]
        if self._mesa is not None:
            return self._mesa(logits, batch.labels, batch.images, epoch)  # type: ignore[no-any-return]
        return F.cross_entropy(logits, batch.labels, label_smoothing=self._smoothing)

    def per_sample(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The cross entropy of each sample, which ESAM chooses by."""
        return F.cross_entropy(logits, labels, label_smoothing=self._smoothing, reduction="none")

    def after_step(self) -> None:
        """Follow the optimizer's step."""
        if self._mesa is not None:
            self._mesa.update()

    def state_dict(self) -> dict[str, Any]:
        """What is remembered."""
        return {name: module.state_dict() for name, module in self._modules().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        for name, module in self._modules().items():
            module.load_state_dict(state[name])

    def _modules(self) -> dict[str, nn.Module]:
        both: dict[str, nn.Module | None] = {"saf": self._saf, "mesa": self._mesa}
        return {name: module for name, module in both.items() if module is not None}
