"""Compare SGD, SAM and vSAM on a small generated problem with wrong labels: accuracy, second gradients, speed.

Nothing was tuned. The ideal speed counts passes only: 2/(1 + p) times SAM's at a sampling rate p.
"""

from statistics import fmean, stdev

import torch
from torch import Tensor, nn

import vsam

METHODS = {
    "SGD": lambda base, model: base,
    "SAM": lambda base, model: vsam.SAM(base, model=model, rho=0.2),
    "SAM-5": lambda base, model: vsam.SAM(base, model=model, rho=0.2, every=5),
    "vSAM": lambda base, model: vsam.VSAM(base, model=model, rho=0.2, budget=0.2),
}


def generate(count: int, noise: float) -> tuple[Tensor, Tensor]:
    """Draw points, labelled by the closest of five directions. A fraction `noise` of the labels is redrawn."""
    inputs, directions = torch.randn(count, 20), torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    labels = (inputs @ directions).abs().argmax(dim=1)
    return inputs, torch.where(torch.rand(count) < noise, torch.randint(5, (count,)), labels)


def train(method: str, seed: int, epochs: int) -> tuple[float, int]:
    """Accuracy in percent on clean test points, and how many of the 20 steps per epoch took a second gradient."""
    torch.manual_seed(seed)
    inputs, labels = generate(2_000, noise=0.3)
    model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    optimizer, scheduler = METHODS[method](base, model), torch.optim.lr_scheduler.CosineAnnealingLR(base, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(2_000).split(100):

            def closure(batch: Tensor = batch) -> Tensor:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
                loss.backward()
                return loss

            optimizer.step(closure)
        scheduler.step()
    inputs, labels = generate(5_000, noise=0.0)
    return 100 * (model(inputs).argmax(dim=1) == labels).float().mean().item(), getattr(optimizer, "num_samples", 0)


def main(num_seeds: int = 3, epochs: int = 50) -> None:
    print("method  accuracy, % (std)  second gradients  ideal speed")
    for method in METHODS:
        accuracies, samples = zip(*[train(method, seed, epochs) for seed in range(num_seeds)], strict=True)
        accuracy, share = f"{fmean(accuracies):.2f} ± {stdev(accuracies):.2f}", fmean(samples) / (20 * epochs)
        print(f"{method:6}{accuracy:>19}{fmean(samples):>10.0f} of {20 * epochs}{2 / (1 + share):>12.2f}x")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the layers are too small to share
    main()
