"""MESA: memory-efficient sharpness-aware training, which compares logits with those of an averaged teacher."""

import copy
from collections import OrderedDict
from typing import Any, Self

import torch
from torch import Tensor, nn

from vsam.checks import check_fraction
from vsam.quantize import QuantizedLayer
from vsam.trajectory.loss import TrajectoryLoss, trajectory_loss


class MESALoss(TrajectoryLoss):
    """Cross entropy plus the distance from the prediction of an exponential moving average of the model.

    `loss = CE + λ · τ² · KL( softmax(z_old/τ) ‖ softmax(z/τ) )`, the KL averaged over the batch, the gradient
    through `z` only, active when `epoch > start_epoch`. `z_old` comes from the teacher: a deep copy of the
    model without its hooks, in eval mode, without gradients, whose weights and floating-point buffers
    follow `teacher ← decay · teacher + (1 − decay) · model`. Other buffers are copied, and so is the step
    size that a quantized layer sets for its inputs on its first batch.

    Call `update()` after every optimizer step, from the first one on. The model is only referenced:
    `parameters()` and `state_dict()` of this module hold the teacher, not the model. In `eval()` the loss
    is plain.

    Reduces to plain training with `weight=0`. Cost: one pass per step and, when active, one forward pass of
    the teacher, and one more copy of weights and buffers, whatever the size of the data.

    Args:
        model: the model that is trained, on its final device, unwrapped (for DDP, its `module`).
        decay: in [0, 1). At 1 the teacher would never move.
        temperature: τ > 0.
        weight: λ ≥ 0.
        start_epoch: the last epoch of plain training, counted from 0; −1 for none.
        label_smoothing: in [0, 1], torch's form (`1 − ε + ε/C` on the target).

    Example:
        >>> model = nn.Linear(8, 3)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> mesa = MESALoss(model)
        >>> inputs, labels = torch.randn(4, 8), torch.tensor([0, 2, 1, 1])
        >>> mesa(model(inputs), labels, inputs, epoch=6).backward()
        >>> _ = optimizer.step()
        >>> mesa.update()

    Reference: Du, Zhou, Feng, Tan, Zhou, "Sharpness-Aware Training for Free", NeurIPS 2022.
    """

    name = "MESA"

    def __init__(
        self,
        model: nn.Module,
        decay: float = 0.9995,
        temperature: float = 5.0,
        weight: float = 0.8,
        start_epoch: int = 5,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(temperature, weight, start_epoch, label_smoothing)
        self.decay = check_fraction("decay", decay, one=False)
        for name, parameter in model.named_parameters():
            if parameter.dtype in (torch.float16, torch.bfloat16):
                raise ValueError(f"weights must be float32 or wider, got {parameter.dtype} in {name}: use autocast.")
        self.teacher = _copy_without_hooks(model).eval().requires_grad_(False)
        # A tuple, because a module attribute would be registered: trained and saved twice.
        self._student = (model,)

    def forward(self, logits: Tensor, labels: Tensor, inputs: Tensor, epoch: int) -> Tensor:
        """Return the loss of one batch.

        Args:
            logits: the model's predictions on `inputs`, examples × classes.
            labels: classes, or probabilities, as in `cross_entropy`.
            inputs: the model's inputs, for the teacher.
            epoch: counted from 0.
        """
        loss = self.plain(logits, labels)
        if not self.is_active(epoch):
            return loss
        with torch.no_grad():
            self._copy_first_steps()
            old = self.teacher(inputs)
        if not isinstance(old, Tensor):
            raise ValueError(f"the model must return its logits as a tensor, got {type(old).__name__}.")
        return loss + self.weight * trajectory_loss(logits, old, self.temperature)

    @torch.no_grad()
    def update(self) -> None:
        """Move the teacher towards the model. Call it once after each optimizer step."""
        (student,) = self._student
        self._copy_first_steps()
        averages, latest = ([*one.parameters(), *one.buffers()] for one in (self.teacher, student))
        if len(averages) != len(latest):
            raise RuntimeError("the model was changed after MESALoss was constructed: construct it after that.")
        for average, value in zip(averages, latest, strict=True):
            if average.is_floating_point() or average.is_complex():
                average.lerp_(value, 1 - self.decay)
            else:
                average.copy_(value)

    def _describe(self) -> str:
        cost = "one pass per step and a forward pass of the teacher, one more copy of weights and buffers"
        return f"from the prediction of the model's moving average (decay {self.decay:g}). Cost: {cost}"

    def _copy_first_steps(self) -> None:
        """Copy the input step size that a quantized layer of the teacher lacks before its first batch."""
        (student,) = self._student
        for follower, leader in zip(self.teacher.modules(), student.modules(), strict=False):
            if isinstance(follower, QuantizedLayer) and isinstance(leader, QuantizedLayer) and not follower.has_step():
                follower.activation_step.copy_(leader.activation_step)
                follower.initialised.copy_(leader.initialised)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the loss. The teacher stays in eval mode."""
        super().train(mode)
        self.teacher.eval()
        return self

    def extra_repr(self) -> str:
        """Return the settings as shown by `repr`."""
        return f"decay={self.decay}, {super().extra_repr()}"


def _copy_without_hooks(model: nn.Module) -> nn.Module:
    """Return a deep copy without the hooks, because an optimizer that they refer to must not be copied."""
    hooks = [name for name in vars(nn.Module()) if name.startswith(("_forward_", "_backward_"))]
    memo: dict[int, Any] = {id(getattr(module, name)): OrderedDict() for module in model.modules() for name in hooks}
    return copy.deepcopy(model, memo)
