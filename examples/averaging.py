"""Average the weights while training: it costs no pass, and combines with every method here.

The average runs at the unperturbed weights, after `step`. `use_buffers=True` averages BatchNorm's statistics too.
Without it, call `torch.optim.swa_utils.update_bn(loader, average)` once at the end.
"""

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import vsam


def generate(count: int, noise: float) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, 10)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
    return inputs, torch.where(torch.rand(count) < noise, 1 - labels, labels)


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return 100 * (model.eval()(inputs).argmax(1) == labels).float().mean().item()


def main() -> dict[str, tuple[float, float]]:
    found = {}
    for name in ("SGD", "vSAM"):
        torch.manual_seed(0)
        inputs, labels = generate(1_000, noise=0.2)
        model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if name == "vSAM":
            optimizer = vsam.VSAM(optimizer, model=model, budget=0.2)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
        for _ in range(600):
            batch = torch.randint(1_000, (50,))

            def closure():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
                loss.backward()
                return loss

            optimizer.step(closure)
            average.update_parameters(model)
        test = generate(2_000, noise=0.0)
        found[name] = accuracy(model, *test), accuracy(average.module, *test)
        print(f"{name}: test accuracy {found[name][0]:.1f} %, averaged weights {found[name][1]:.1f} %")
    return found


if __name__ == "__main__":
    main()
