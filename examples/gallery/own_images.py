"""Train on a folder of your own images, with SGD and with vSAM on a budget: python examples/gallery/own_images.py."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

import vsam
from vsam.lab.data import load

EPOCHS = 12


def write_images(folder: Path) -> None:
    """Make what you have already: folder/train/CLASS/*.png and folder/test/CLASS/*.png.

    A fifth of the training images are put into a wrong class, as happens where people label by hand.
    """
    data = load("fashion-mini").subset(train=600, test=500).noisy(0.2, seed=0)
    splits = {"train": (data.train_images, data.train_labels), "test": (data.test_images, data.test_labels)}
    for split, (images, labels) in splits.items():
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            place = folder / split / data.class_names[label].replace("/", " or ")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0].numpy()).save(place / f"{number}.png")


class ImageFolder(Dataset):
    """The images below a folder, whose subfolders are the classes."""

    def __init__(self, folder: Path) -> None:
        self.classes = sorted(path.name for path in folder.iterdir())
        self.files = [path for name in self.classes for path in sorted((folder / name).glob("*.png"))]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = torch.from_numpy(np.asarray(Image.open(self.files[index]), dtype=np.float32))
        return pixels[None] / 255 - 0.5, self.classes.index(self.files[index].parent.name)


def make_network(num_classes: int) -> nn.Module:
    layers = [nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2)]
    return nn.Sequential(*layers, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, num_classes))


def train(folder: Path, is_sharpness_aware: bool) -> tuple[list[float], nn.Module, float]:
    torch.manual_seed(0)
    data, test = ImageFolder(folder / "train"), ImageFolder(folder / "test")
    loader = DataLoader(data, batch_size=50, shuffle=True)
    images, labels = next(iter(DataLoader(test, batch_size=len(test))))
    model = make_network(len(data.classes))
    total_steps = EPOCHS * len(loader)

    optimizer = base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    if is_sharpness_aware:  # the change: one line here, and a closure below
        optimizer = vsam.VSAM(base, model=model, budget=0.2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(base, total_steps)

    accuracies = []
    for _ in range(EPOCHS):
        model.train()
        for inputs, targets in loader:

            def closure():
                base.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                return loss

            optimizer.step(closure)
            scheduler.step()
        with torch.no_grad():
            accuracies.append(100 * (model.eval()(images).argmax(1) == labels).float().mean().item())
    return accuracies, model, optimizer.cost if is_sharpness_aware else 1.0


def draw(curves: dict[str, list[float]], model: nn.Module, folder: Path, path: Path) -> None:
    figure, (left, *others) = plt.subplots(1, 5, figsize=(10, 3.2), width_ratios=[3, 1, 1, 1, 1], layout="constrained")
    for name, accuracies in curves.items():
        left.plot(range(1, EPOCHS + 1), accuracies, marker=".", label=name)
    left.set(xlabel="epoch", ylabel="test accuracy, %", title="600 images, a fifth of them mislabelled; one seed")
    left.grid(alpha=0.3)
    left.legend()
    test = ImageFolder(folder / "test")
    for axes, index in zip(others, range(0, len(test), len(test) // 4), strict=False):
        image, label = test[index]
        guess = test.classes[int(model(image[None]).argmax())]
        axes.imshow(image[0].numpy(), cmap="gray_r")
        axes.set_title(f"{guess}\n({test.classes[label]})", fontsize=9)
        axes.axis("off")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(out: str | Path = ".") -> dict[str, list[float]]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder)
        curves = {}
        for label, is_sharpness_aware in (("SGD", False), ("vSAM, budget 0.2", True)):
            accuracies, model, cost = train(folder, is_sharpness_aware)
            curves[f"{label}: {cost:.2f} passes per step"] = accuracies
            print(f"{label}: {accuracies[-1]:.1f} % after {EPOCHS} epochs, {cost:.2f} passes per step")
        plt.rcParams["svg.hashsalt"] = "vsam"
        draw(curves, model, folder, Path(out) / "own_images.svg")
    return curves


if __name__ == "__main__":
    main(*sys.argv[1:])
