"""Fabric: `optimizer.step(closure)` as in any loop, with micro-batches looped inside the closure."""

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

import vsam


def main() -> tuple[list[float], vsam.VSAM]:
    fabric = Fabric(accelerator="cpu", precision="bf16-mixed")
    fabric.launch()
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    loader = list(zip(points.split(100), labels.split(100), strict=True))
    network = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))

    base = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    model, optimizer = fabric.setup(network, vsam.VSAM(base, model=network, budget=0.2, max_grad_norm=1.0))

    losses = []
    for _ in range(10):
        for inputs, targets in loader:
            micro_batches = list(zip(inputs.split(50), targets.split(50), strict=True))

            def closure() -> Tensor:
                total = torch.zeros(())
                for i, (x, y) in enumerate(micro_batches):
                    with fabric.no_backward_sync(model, enabled=i + 1 < len(micro_batches)):
                        loss = nn.functional.cross_entropy(model(x), y) / len(micro_batches)
                        fabric.backward(loss)
                    total += loss.detach()
                return total

            losses.append(optimizer.step(closure).item())

    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"{optimizer.num_samples} second gradients in {len(losses)} steps")
    return losses, optimizer


if __name__ == "__main__":
    main()
