"""timm's training loop as a closure: mixup stays outside, autocast and backward move inside.

`mixup`, `ModelEma` and `Scheduler` are small stand-ins that are called like timm's own, which need torchvision.
"""

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import vsam


def mixup(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    inputs.copy_(0.9 * inputs + 0.1 * inputs.flip(0))  # in place, so not inside the closure
    labels = nn.functional.one_hot(targets, 2).float()
    return inputs, 0.9 * labels + 0.1 * labels.flip(0)


class ModelEma(AveragedModel):
    def update(self, model: nn.Module, step: int) -> None:
        self.update_parameters(model)


class Scheduler:
    def __init__(self, optimizer: torch.optim.Optimizer, length: int) -> None:
        self.lr, self.groups, self.length = optimizer.param_groups[0]["lr"], optimizer.param_groups, length

    def step_update(self, num_updates: int) -> None:
        self.groups[0]["lr"] = self.lr * (1 - num_updates / self.length)


def main() -> tuple[list[float], vsam.VSAM]:
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    batches = list(zip(points.split(50), (points[:, 0] * points[:, 1] > 0).long().split(50), strict=True))
    model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
    base = torch.optim.AdamW(model.parameters(), lr=0.005)  # or timm's create_optimizer_v2(…)
    optimizer = vsam.VSAM(base, model=model, budget=0.2, rho=0.02, max_grad_norm=1.0)
    model_ema, scheduler, losses = ModelEma(model), Scheduler(optimizer, 10 * len(batches)), []
    for batch, labels in batches * 10:
        inputs, targets = mixup(batch.clone(), labels)

        def closure():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
        model_ema.update(model, step=len(losses))
        scheduler.step_update(len(losses))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {optimizer.num_samples} second gradients")
    return losses, optimizer


if __name__ == "__main__":
    main()
