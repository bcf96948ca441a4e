"""Mixed precision: bfloat16 needs no scaling, float16 needs `vsam.amp.GradScaler`, which unscales both passes.

Both run on the CPU here so that the file runs everywhere. On a GPU write "cuda" for "cpu" and take float16.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vsam


def train(step: Callable, num_steps: int = 60) -> list[float]:
    """Train with a `step` that gets a model, an optimizer and the loss in bfloat16, and return the losses."""
    torch.manual_seed(0)
    inputs = torch.randn(200, 10)
    targets = (inputs[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.VSAM(base, model=model, budget=0.2)

    def forward() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(model(inputs), targets)

    return [step(optimizer, forward).item() for _ in range(num_steps)]


def plain(optimizer: vsam.VSAM, forward: Callable[[], Tensor]) -> Tensor:
    def closure() -> Tensor:
        loss = forward()
        loss.backward()
        return loss

    return optimizer.step(closure)


def main() -> tuple[list[float], list[float], float]:
    scaler = vsam.amp.GradScaler("cpu", growth_interval=20)

    def scaled(optimizer: vsam.VSAM, forward: Callable[[], Tensor]) -> Tensor:
        def closure() -> Tensor:
            loss = forward()
            scaler.scale(loss).backward()
            return loss

        loss = scaler.step(optimizer, closure)
        scaler.update()
        return loss

    without, with_scaler = train(plain), train(scaled)
    print(f"bfloat16: loss {without[0]:.3f} -> {without[-1]:.3f}")
    print(f"with a scaler: loss {with_scaler[0]:.3f} -> {with_scaler[-1]:.3f}, scale {scaler.get_scale():.0f}")
    return without, with_scaler, scaler.get_scale()


if __name__ == "__main__":
    main()
