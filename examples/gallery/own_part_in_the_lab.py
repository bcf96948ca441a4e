"""Your own rule next to SGD and SAM, in the lab's own comparison: python examples/gallery/own_part_in_the_lab.py.

The same file works on the command line:
vsam compare --use examples/gallery/own_part_in_the_lab.py --methods sgd,sam,first-half,last-half
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

import vsam
import vsam.lab
from vsam.lab.compare import compare
from vsam.lab.recipes.load import load_recipe
from vsam.lab.report.figures import cost_figure
from vsam.lab.rows import Row, by_label, summarise


class FirstPart(vsam.When):
    """Take the second gradient in the first `length` steps, and then no more."""

    rate = None  # the record then shows the running rate

    def __init__(self, length: int) -> None:
        self.length = length

    def before(self, step: int) -> bool:
        return step <= self.length

    def describe(self) -> str:
        return f"takes the second gradient in the first {self.length} steps"


@vsam.lab.method("first-half")
def first_half(total_steps, share=0.5):
    """SAM in the first half of the run."""
    return FirstPart(round(share * total_steps))


@vsam.lab.method("last-half")
def last_half(total_steps, share=0.5):
    """SAM in the last half of the run."""
    return vsam.Tail(share, total_steps)


@vsam.lab.model("small-cnn")
def small_cnn(num_classes, in_channels):
    """Two convolutions with BatchNorm."""
    layers = [nn.Conv2d(in_channels, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2)]
    return nn.Sequential(*layers, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, num_classes))


def main(out: str | Path = ".") -> list[Row]:
    changes = ("model=small-cnn", "epochs=8", "data.train=600", "data.noise=0.3", "lr=0.05", "rho=0.05")
    recipe = load_recipe("fashion-mini", changes=changes)
    recipes = [recipe.updated(method=method) for method in ("sgd", "sam", "first-half", "last-half")]
    with TemporaryDirectory() as folder:
        runs, _ = compare(recipes, Path(folder), None, torch.device("cpu"))
    rows = summarise(by_label(runs))
    for row in rows:
        print(f"{row.label:12} {row.accuracy:.1f} %, {row.samples:.0f} second gradients in {row.steps} steps")
    cost_figure(rows).savefig(Path(out) / "own_part_in_the_lab.png", dpi=150, metadata={"Software": None})
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
