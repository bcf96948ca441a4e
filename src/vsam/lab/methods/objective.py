"""The loss of a run: cross entropy, or a trajectory loss around it."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from vsam import MESALoss, SAFLoss
from vsam.lab.data import Batch, Dataset
from vsam.lab.errors import UserError
from vsam.lab.ranks import ALONE, Ranks
from vsam.lab.recipes.recipe import Recipe

__all__ = ["Objective", "build_objective"]


class Objective:
    """Cross entropy: the objective of a run, unless its method is a loss.

    Args:
        recipe: the settings.
        model: the network being trained.
        dataset: the training data.
        ranks: the processes that compute it, all from the predictions for the full batch.
    """

    def __init__(self, recipe: Recipe, model: nn.Module, dataset: Dataset, ranks: Ranks = ALONE) -> None:
        # The recipe's ε leaves 1 − ε on the target, as in the authors' program; torch's leaves 1 − ε + ε/C.
        self._smoothing = min(1.0, recipe.label_smoothing * dataset.num_classes / max(1, dataset.num_classes - 1))

    def __call__(self, logits: Tensor, batch: Batch, epoch: int) -> Tensor:
        """The mean loss of the batch."""
        return F.cross_entropy(logits, batch.labels, label_smoothing=self._smoothing)

    def per_sample(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The cross entropy per sample, which ESAM selects by."""
        return F.cross_entropy(logits, labels, label_smoothing=self._smoothing, reduction="none")

    def after_step(self) -> None:
        """Update after the optimizer's step."""

    def modules(self) -> dict[str, nn.Module]:
        """The modules to save with the run, by name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state to save."""
        return {name: module.state_dict() for name, module in self.modules().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what `state_dict` returned."""
        for name, module in self.modules().items():
            module.load_state_dict(state[name])


class _SAF(Objective):
    """`vsam.SAFLoss`, whose memory has an entry per training image."""

    def __init__(self, recipe: Recipe, model: nn.Module, dataset: Dataset, ranks: Ranks = ALONE) -> None:
        super().__init__(recipe, model, dataset, ranks)
        count, classes = len(dataset.train_images), dataset.num_classes
        self._loss = SAFLoss(count, classes, label_smoothing=self._smoothing, **recipe.saf.model_dump())
        self._loss.to(dataset.train_images.device)

    def __call__(self, logits: Tensor, batch: Batch, epoch: int) -> Tensor:
        """The mean loss of the batch."""
        return self._loss(logits, batch.labels, batch.indices, epoch)  # type: ignore[no-any-return]

    def modules(self) -> dict[str, nn.Module]:
        """The loss with its memory."""
        return {"saf": self._loss}


class _MESA(Objective):
    """`vsam.MESALoss`, which keeps an average of the network's past weights."""

    def __init__(self, recipe: Recipe, model: nn.Module, dataset: Dataset, ranks: Ranks = ALONE) -> None:
        super().__init__(recipe, model, dataset, ranks)
        self._loss = MESALoss(model, label_smoothing=self._smoothing, **recipe.mesa.model_dump())
        self._count = 0
        # Each process evaluates the averaged weights on its own images only.
        self._loss.teacher.register_forward_hook(lambda _, inputs, output: ranks.gather(output, self._count))

    def __call__(self, logits: Tensor, batch: Batch, epoch: int) -> Tensor:
        """The mean loss of the batch."""
        self._count = len(batch.labels)
        return self._loss(logits, batch.labels, batch.images, epoch)  # type: ignore[no-any-return]

    def after_step(self) -> None:
        """Update the average with the new weights."""
        self._loss.update()

    def modules(self) -> dict[str, nn.Module]:
        """The loss with its average."""
        return {"mesa": self._loss}


_OBJECTIVES = {"saf": _SAF, "mesa": _MESA}


def build_objective(model: nn.Module, recipe: Recipe, dataset: Dataset, ranks: Ranks = ALONE) -> Objective:
    """Construct the objective of a recipe's run."""
    try:
        return _OBJECTIVES.get(recipe.method, Objective)(recipe, model, dataset, ranks)
    except (ValueError, RuntimeError) as error:  # the latter from SAF, whose memory would not fit
        raise UserError(f"{recipe.method}: {error}") from error
