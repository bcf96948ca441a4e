"""Save in the middle of a run, resume in new objects, and end with the same weights to the bit."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import vsam


def build() -> tuple[nn.Module, vsam.VSAM]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, vsam.VSAM(base, model=model, budget=0.2)


def train(model: nn.Module, optimizer: vsam.VSAM, first: int, last: int) -> None:
    for step in range(first, last + 1):
        generator = torch.Generator().manual_seed(step)  # the data of a step depends on its number only
        inputs = torch.randn(50, 10, generator=generator)

        def closure(inputs=inputs):
            loss = nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long())
            loss.backward()
            return loss

        optimizer.step(closure)


def main() -> bool:
    model, optimizer = build()
    train(model, optimizer, 1, 150)

    half, half_optimizer = build()
    train(half, half_optimizer, 1, 77)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        torch.save({"model": half.state_dict(), "optimizer": half_optimizer.state_dict(), "step": 77}, path)
        checkpoint = torch.load(path, weights_only=True)

    resumed, resumed_optimizer = build()
    resumed.load_state_dict(checkpoint["model"])
    resumed_optimizer.load_state_dict(checkpoint["optimizer"])
    train(resumed, resumed_optimizer, checkpoint["step"] + 1, 150)

    pairs = zip(model.state_dict().values(), resumed.state_dict().values(), strict=True)
    is_same = all(torch.equal(a, b) for a, b in pairs)
    print(f"{resumed_optimizer.num_samples} second gradients in 150 steps, same weights to the bit: {is_same}")
    return is_same and resumed_optimizer.num_samples == optimizer.num_samples


if __name__ == "__main__":
    main()
