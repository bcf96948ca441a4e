"""Quantize a trained network to 2, 3, 4 and 8 bits and continue training: python examples/gallery/quantization.py."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import vsam
from vsam.lab.data import load
from vsam.quantize import integer_weights, parameter_groups, quantize, size_report

BITS = (2, 3, 4, 8)
Data = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def make_data() -> Data:
    data = load("fashion-mini").subset(train=1000, test=1000)
    return data.train_images / 255 - 0.5, data.train_labels, data.test_images / 255 - 0.5, data.test_labels


def make_network() -> nn.Module:
    layers = [nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2)]
    middle = [nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*layers, *middle, nn.Flatten(), nn.Linear(32 * 16, 10))


def train(model: nn.Module, base: torch.optim.Optimizer, data: Data, num_steps: int) -> float:
    """Train, and return the test accuracy."""
    images, labels, test_images, test_labels = data
    optimizer = vsam.VSAM(base, model=model, budget=0.2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(base, num_steps)
    model.train()
    for _ in range(num_steps):
        chosen = torch.randint(len(images), (50,))

        def closure():
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            return loss

        optimizer.step(closure)
        scheduler.step()
    with torch.no_grad():
        return 100 * (model.eval()(test_images).argmax(1) == test_labels).float().mean().item()


def main(out: str | Path = ".") -> tuple[float, dict[int, tuple[float, int]]]:
    torch.manual_seed(0)
    data = make_data()
    full = make_network()
    sgd = torch.optim.SGD(full.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    full_accuracy = train(full, sgd, data, 160)
    print(f"full precision: {full_accuracy:.1f} %")

    results, shown = {}, {}
    for bits in BITS:
        model = quantize(full, weight_bits=bits, activation_bits=bits, first_last_bits=8)
        base = torch.optim.SGD(parameter_groups(model, weight_decay=1e-4), lr=0.01, momentum=0.9)
        accuracy = train(model, base, data, 60)
        results[bits] = accuracy, size_report(model).quantized_bytes
        integers, _ = integer_weights(model)["6"]  # the third convolution
        shown[bits] = integers.flatten()
        print(f"{bits} bits: {accuracy:.1f} %, {results[bits][1]:,} bytes")

    plt.rcParams["svg.hashsalt"] = "vsam"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.axhline(full_accuracy, color="C1", label="full precision")
    left.plot([str(bits) for bits in BITS], [results[bits][0] for bits in BITS], "o-", label="quantized, trained on")
    left.set(xlabel="bits of weights and activations", ylabel="test accuracy, %", title="1,000 images, one seed")
    left.grid(alpha=0.3)
    left.legend()
    values, counts = shown[3].unique(return_counts=True)
    right.bar(values.tolist(), counts.tolist(), color="C0")
    right.set(xlabel="integer", ylabel="weights", title="integers of the third convolution at 3 bits")
    figure.savefig(Path(out) / "quantization.svg", metadata={"Date": None})
    plt.close(figure)
    return full_accuracy, results


if __name__ == "__main__":
    main(*sys.argv[1:])
