"""The examples in the docstrings run as they are printed."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import vsam
import vsam.between
import vsam.when
import vsam.where


def modules() -> Iterator[str]:
    for package in (vsam.when, vsam.where, vsam.between):
        yield from (f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__))
    yield from ("vsam.optimizer", "vsam.methods", "vsam.selection", "vsam.registry")
    yield from (f"vsam.sharpness.{name}" for name in ("measurement", "landscape", "radius", "watch"))


def surroundings() -> dict[str, Any]:
    """Return the names that an example's reader has."""
    model = nn.Linear(2, 3)
    optimizer = vsam.ESAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    data = {"inputs": torch.ones(4, 2), "targets": torch.tensor([0, 1, 2, 0])}
    return {"torch": torch, "model": model, "optimizer": optimizer, **data}


@pytest.mark.parametrize("name", list(modules()))
def test_the_examples_hold(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(name), extraglobs=surroundings())
    assert failed == 0
    assert attempted > 0
