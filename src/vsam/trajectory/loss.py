"""The trajectory loss of SAF and MESA: the distance from an older prediction of the same examples."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam.checks import check_count, check_fraction, check_not_negative, check_positive
from vsam.optimizer import SharpnessAware


def trajectory_loss(logits: Tensor, old: Tensor, temperature: float, known: Tensor | None = None) -> Tensor:
    """Return `τ² · KL( softmax(old/τ) ‖ softmax(logits/τ) )`, averaged over the batch.

    The gradient flows through `logits` only and is `τ · (softmax(logits/τ) − softmax(old/τ)) / batch`. It
    is computed in float32 or wider, so it is safe under autocast.

    Args:
        logits: predictions, examples × classes.
        old: older predictions of the same examples.
        temperature: τ > 0.
        known: one boolean per example; an unknown example adds nothing, but still counts in the mean.
    """
    if logits.dim() != 2 or old.shape != logits.shape:
        shapes = f"{tuple(logits.shape)} and {tuple(old.shape)}"
        raise ValueError(f"logits must be a matrix, examples × classes, of the same shape as the older: got {shapes}.")
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_new = F.log_softmax(logits.to(dtype) / temperature, dim=1)
    log_old = F.log_softmax(old.detach().to(dtype) / temperature, dim=1)
    divergence = (log_old.exp() * (log_old - log_new)).sum(dim=1)
    if known is not None:
        divergence = torch.where(known, divergence, 0.0)
    return temperature**2 * divergence.mean()


class TrajectoryLoss(nn.Module, ABC):
    """Base of SAF and MESA: the settings, the plain loss, and when the trajectory term is added.

    The plain loss is `torch.nn.functional.cross_entropy` with its own form of label smoothing ε: `1 − ε +
    ε/C` on the target and `ε/C` elsewhere. Up to and including `start_epoch`, and in `eval()`, the loss is
    exactly that.

    Args:
        temperature: τ > 0.
        weight: λ ≥ 0; 0 is plain training.
        start_epoch: the last epoch of plain training, counted from 0; −1 for none.
        label_smoothing: ε in [0, 1].
    """

    name: str
    """The name it was published under."""

    def __init__(self, temperature: float, weight: float, start_epoch: int, label_smoothing: float) -> None:
        super().__init__()
        self.temperature = check_positive("temperature", temperature)
        self.weight = check_not_negative("weight", weight)
        self.start_epoch = check_count("start_epoch", start_epoch, least=-1, why="-1 stands for no plain epoch")
        self.label_smoothing = check_fraction("label_smoothing", label_smoothing)

    def plain(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy with label smoothing."""
        return F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)

    def is_active(self, epoch: int) -> bool:
        """Return whether the trajectory term is part of the loss in this epoch."""
        return check_count("epoch", epoch, least=0, why="the first one is 0") > self.start_epoch and self.training

    def describe(self, optimizer: Optimizer | None = None) -> str:
        """Describe the loss, its cost, and whether it was published with this optimizer."""
        start = f"From epoch {self.start_epoch + 1} on" if self.start_epoch >= 0 else "From the start"
        origin = f"Published as {self.name} (Du et al., NeurIPS 2022)"
        if isinstance(optimizer, SharpnessAware):
            origin += ", but not with a second gradient: experimental"
        return f"{start} it adds {self.weight:g} of the distance {self._describe()}. {origin}."

    @abstractmethod
    def _describe(self) -> str:
        """Return the end of a sentence about the distance, and the cost as another sentence."""

    def extra_repr(self) -> str:
        """Return the settings as shown by `repr`."""
        names = ("temperature", "weight", "start_epoch", "label_smoothing")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)
