"""SAF: sharpness-aware training for free, which compares logits with the same example's from some epochs ago."""

import torch
from torch import Tensor

from vsam.trajectory.loss import TrajectoryLoss, trajectory_loss
from vsam.trajectory.memory import LogitMemory


class SAFLoss(TrajectoryLoss):
    """Cross entropy plus the distance from this example's own prediction `lag` epochs ago.

    `loss = CE + λ · τ² · KL( softmax(z_old/τ) ‖ softmax(z/τ) )`, the KL averaged over the batch, the gradient
    through `z` only, active when `epoch > start_epoch`. An example without logits from exactly `epoch − lag`
    adds nothing.

    Recording is idempotent: in training mode, with gradients enabled, the first call for an example in an
    epoch is recorded and later ones are not. So with a closure that an optimizer calls twice, the memory
    comes from the clean first pass, and a repeated or resumed epoch keeps what it has. In `eval()` nothing
    is recorded, indices are ignored, and the loss is plain.

    Reduces to plain training with `weight=0`. Cost: one pass per step; examples × (lag + 1) × (classes + 1) ×
    4 bytes, logged at construction. If they do not fit, an error is raised. The memory may stay on the CPU while
    the model is elsewhere. In a distributed run each process remembers only what it saw itself: send each
    example to the same process in every epoch.

    Args:
        num_examples: size of the training set; indices run from 0 to `num_examples − 1`.
        num_classes: logits per example, at least 2.
        lag: E, how many epochs to look back, at least 1.
        temperature: τ > 0.
        weight: λ ≥ 0.
        start_epoch: the last epoch of plain training, counted from 0; −1 for none.
        label_smoothing: in [0, 1], torch's form (`1 − ε + ε/C` on the target).

    Example:
        >>> saf = SAFLoss(num_examples=50_000, num_classes=10)
        >>> saf.memory_bytes
        8800000
        >>> logits = torch.randn(4, 10, requires_grad=True)
        >>> loss = saf(logits, torch.tensor([3, 1, 4, 1]), indices=torch.tensor([7, 0, 49_999, 12]), epoch=0)
        >>> loss.backward()

    Reference: Du, Zhou, Feng, Tan, Zhou, "Sharpness-Aware Training for Free", NeurIPS 2022.
    """

    name = "SAF"

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        lag: int = 3,
        temperature: float = 5.0,
        weight: float = 0.3,
        start_epoch: int = 5,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(temperature, weight, start_epoch, label_smoothing)
        self.memory = LogitMemory(num_examples, num_classes, lag)

    @property
    def memory_bytes(self) -> int:
        """The size of the memory of logits in bytes."""
        return self.memory.memory_bytes

    def forward(self, logits: Tensor, labels: Tensor, indices: Tensor | None, epoch: int) -> Tensor:
        """Return the loss of one batch and remember its logits.

        Args:
            logits: predictions, examples × classes.
            labels: classes, or probabilities, as in `cross_entropy`.
            indices: the examples' positions in the training set, an integer vector. On the CPU they are checked
                without a device sync. An example may occur twice.
            epoch: counted from 0.
        """
        is_active = self.is_active(epoch)
        loss = self.plain(logits, labels)
        if not self.training:
            return loss
        indices = self._check(logits, indices)
        if is_active:
            old, known = (found.to(logits.device) for found in self.memory.recall(indices, epoch))
            loss = loss + self.weight * trajectory_loss(logits, old, self.temperature, known)
        if torch.is_grad_enabled():
            self.memory.record(logits, indices, epoch)
        return loss

    def _describe(self) -> str:
        cost = f"one pass per step, {self.memory_bytes / 1e6:,.1f} MB of logits"
        return f"from each example's own prediction {self.memory.lag} epochs ago. Cost: {cost}"

    def _check(self, logits: Tensor, indices: Tensor | None) -> Tensor:
        _, num_examples, num_classes = self.memory.logits.shape
        if logits.dim() != 2 or logits.shape[1] != num_classes:
            got = tuple(logits.shape)
            raise ValueError(f"logits must be a matrix, examples × {num_classes} classes, got shape {got}.")
        if not isinstance(indices, Tensor):
            kind = type(indices).__name__
            raise ValueError(f"indices must be a tensor, got {kind}: the dataset must return each example's index.")
        if indices.dtype == torch.bool or indices.is_floating_point() or indices.is_complex():
            raise ValueError(f"indices must be integers (positions in the training set), got {indices.dtype}.")
        if indices.shape != logits.shape[:1]:
            got = tuple(indices.shape)
            raise ValueError(f"indices must be a vector with one index per example, {len(logits)}, got shape {got}.")
        low, high = (int(bound) for bound in indices.aminmax()) if len(indices) else (0, 0)
        if low < 0 or high >= num_examples:
            wrong = low if low < 0 else high
            raise ValueError(f"indices must be between 0 and {num_examples - 1} (positions in the data), got {wrong}.")
        return indices
