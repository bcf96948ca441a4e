"""Write your own `when`: sample with a probability that rises over the run."""

import random
from typing import Any

import torch
from torch import nn

import vsam


class Ramp(vsam.When):
    """Sample with a probability that rises from 0 to 1 over the first `length` steps."""

    rate = None  # the record then shows the running rate

    def __init__(self, length: int, seed: int = 0) -> None:
        self.length, self.seed = length, seed
        self.generator = random.Random(seed)

    def before(self, step: int) -> bool:
        return self.generator.random() < step / self.length

    def describe(self) -> str:
        return f"takes the second gradient more and more often until step {self.length}, and then always"

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.setstate(state["generator"])


def main() -> tuple[list[int], vsam.SharpnessAware]:
    torch.manual_seed(0)
    inputs = torch.randn(200, 10)
    targets = (inputs[:, 0] * inputs[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.SharpnessAware(base, model=model, when=Ramp(200), between=vsam.Decayed(0.7))
    sampled = []
    optimizer.subscribe(lambda record: sampled.append(int(record.sampled)))

    def closure():
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    for _ in range(250):
        optimizer.step(closure)
    print(optimizer.when, optimizer.describe(), sep="\n")
    print("second gradients in each 50 steps:", [sum(sampled[i : i + 50]) for i in range(0, 250, 50)])
    return sampled, optimizer


if __name__ == "__main__":
    main()
