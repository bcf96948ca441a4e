"""The counts of `benchmarks/counts.py` are exact."""

import gc
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks.counts import Counts, count_calls, count_operators, count_syncs, typical


def test_operators_of_forward_and_backward() -> None:
    assert count_operators(lambda: torch.ones(2).add_(1).mul_(2).mul_(3)) == {
        "aten::ones": 1,
        "aten::add_": 1,
        "aten::mul_": 2,
        "tolist": 0,
    }
    weight = torch.ones(2, requires_grad=True)
    assert count_operators(lambda: (weight * 2).sum().backward())["aten::mul"] == 2


def test_syncs() -> None:
    value = torch.ones(2)

    def step() -> None:
        assert value.sum() > 0
        value[0].item()
        value.tolist()
        value.add_(1)

    assert count_syncs(count_operators(step)) == 3


def test_calls() -> None:
    def inner() -> None: ...

    def outer() -> None:
        inner()
        inner()

    names = count_calls(outer)
    assert sorted(name.rpartition(".")[2] for name in names.elements()) == ["inner", "inner", "outer"]


def test_counting_restores_the_profiler_and_the_collector() -> None:
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        count_calls(lambda: 1 / 0)
    assert sys.getprofile() is before
    assert gc.isenabled()


def test_typical_is_the_most_frequent() -> None:
    usual = Counts(sampled=True, passes=2, operators=10, calls=20, syncs=1)
    rare = replace(usual, operators=11)
    assert typical([rare, usual, usual], sampled=True) == usual
    assert typical([usual], sampled=False) is None


def test_beyond_passes_and_base() -> None:
    step = Counts(sampled=True, passes=2, operators=100, calls=50, syncs=1)
    single_pass = Counts(sampled=False, passes=1, operators=30, calls=10, syncs=0)
    base = Counts(sampled=False, passes=0, operators=5, calls=2, syncs=0)
    assert step.beyond(2, single_pass, base) == Counts(sampled=True, passes=0, operators=35, calls=28, syncs=1)
