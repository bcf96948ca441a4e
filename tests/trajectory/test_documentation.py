"""The examples of docstrings and method cards run as they stand."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

CARDS = Path(__file__).parents[2] / "docs" / "methods"


@pytest.mark.parametrize("name", ["saf", "mesa"])
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"vsam.trajectory.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", ["saf", "mesa"])
def test_cards(name):
    (example,) = re.findall(r"```python\n(.*?)```", (CARDS / f"{name}.md").read_text(), re.DOTALL)
    variables = {}
    exec(compile(example, f"{name}.md", "exec"), variables)
    assert set(variables["checkpoint"]) == {"model", name}
