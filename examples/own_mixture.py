"""Combine parts freely: `describe()` says in plain words what the combination does and whether it was published."""

import torch
from torch import nn

import vsam


def main() -> list[str]:
    descriptions = []
    for when, where, between in [
        (vsam.Always(), vsam.GlobalNorm(0.05), vsam.Plain()),
        (vsam.Every(5), vsam.AdaptiveNorm(0.5), vsam.Decayed(0.7)),
        (vsam.GradientThreshold(total_steps=100), vsam.GlobalNorm(0.05), vsam.Decayed(0.9)),
    ]:
        torch.manual_seed(0)
        inputs = torch.randn(200, 10)
        targets = (inputs[:, 0] * inputs[:, 1] > 0).long()
        model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
        base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = vsam.SharpnessAware(base, model=model, when=when, where=where, between=between)

        def closure(model=model, inputs=inputs, targets=targets):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(100)]
        print(f"{when!r} x {where!r} x {between!r}")
        print(f"  {optimizer.describe()}")
        print(f"  loss {losses[0]:.3f} -> {losses[-1]:.3f}, {optimizer.num_samples} second gradients in 100 steps\n")
        descriptions.append(optimizer.describe())
    return descriptions


if __name__ == "__main__":
    main()
