"""The examples of docstrings and of the method card run as they stand."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

CARD = Path(__file__).parents[2] / "docs" / "methods" / "lsq.md"


@pytest.mark.parametrize("name", ["lsq", "convert", "export"])
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"vsam.quantize.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_card(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", CARD.read_text(), re.DOTALL)
    exec(compile(example, "lsq.md", "exec"), {})
    assert capsys.readouterr().out.startswith("torch.int8 ")
