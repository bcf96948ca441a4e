"""Use your own method, model and dataset in the lab: `vsam compare --use examples/your_own.py …`."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

import vsam.lab
from vsam.lab.compare import compare
from vsam.lab.recipes.load import load_recipe


class OftenAtFirst(vsam.Every):
    def __init__(self, k, length):
        super().__init__(k)
        self.length = length

    def before(self, step):
        return step <= self.length or super().before(step)


@vsam.lab.method("often-at-first")
def often_at_first(total_steps, fraction=0.2):
    """SAM at every step of the first part of the run, and at every tenth of the rest."""
    return OftenAtFirst(10, round(fraction * total_steps))


@vsam.lab.method("decayed-3")
def decayed_3(gamma=0.5):
    """SAM at every third step, its PSF reused in between."""
    return vsam.Every(3), vsam.Decayed(gamma)


@vsam.lab.model("perceptron")
def perceptron(num_classes):
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_classes))


@vsam.lab.data("stripes")
def stripes():
    """Noisy 8×8 images with vertical or horizontal stripes."""
    noise = torch.randint(0, 156, (600, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    labels, lines = torch.arange(600) % 2, 100 * (torch.arange(8) % 2).expand(600, 1, 8, 8)
    images = (noise + torch.where(labels.bool().view(-1, 1, 1, 1), lines, lines.mT)).to(torch.uint8)
    return images[:400], labels[:400], images[400:], labels[400:]


def main():
    recipe = load_recipe("fashion-mini", changes=("data.name=stripes", "model=perceptron", "epochs=5", "lr=0.05"))
    recipes = [recipe.updated(method=method) for method in ("sgd", "often-at-first", "decayed-3")]
    with TemporaryDirectory() as folder:
        runs, _ = compare(recipes, Path(folder), None, torch.device("cpu"))
    print(*(f"{run.label}: {run.summary['samples']} second gradients" for run in runs), sep="\n")
    return runs


if __name__ == "__main__":
    main()
