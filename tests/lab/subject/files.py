"""Python files as users write them, and how to spoil one."""

from pathlib import Path

GOOD = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
batches = [(torch.randn(16, 20), torch.randint(4, (16,))) for _ in range(3)]
print("the file prints")


def loss(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)
"""


def write(folder: Path, *changes: tuple[str, str], more: str = "", name: str = "mine.py") -> str:
    """The good file with texts replaced, each of which must be there, and lines added."""
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text + more)
    return str(path)
