"""What is counted is counted exactly."""

import gc
import sys
from dataclasses import replace

import pytest
import torch

from lab.bench.made import TINY, entry
from vsam.lab.bench.bases import BASES
from vsam.lab.bench.contestants import Plain
from vsam.lab.bench.counts import Counts, count_calls, count_operators, count_step, count_steps, count_syncs, typical

SGD = BASES["sgd"]


def test_operators() -> None:
    names = count_operators(lambda: torch.ones(2).add_(1).mul_(2).mul_(3))
    assert names == {"aten::ones": 1, "aten::add_": 1, "aten::mul_": 2, "tolist": 0}


def test_operators_of_backward_count() -> None:
    weight = torch.ones(2, requires_grad=True)
    names = count_operators(lambda: (weight * 2).sum().backward())
    assert names["aten::mul"] == 2


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


def test_counting_leaves_the_profiler_and_the_collector_as_they_were() -> None:
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        count_calls(lambda: 1 / 0)
    assert sys.getprofile() is before
    assert gc.isenabled()


def test_the_base_alone_adds_nothing() -> None:
    one, other = Plain(TINY.build(), SGD), Plain(TINY.build(), SGD)
    for loop in (one, other):
        loop.step()  # the first one makes the buffers, and imports
    whole, halves = count_step(one.step, other.step), []
    for half in ("take_pass", "step"):
        halves.append(count_step(*(getattr(p if half == "take_pass" else p.optimizer, half) for p in (one, other))))
    rest = whole.beyond(1, *halves)
    assert (rest.passes, rest.operators, rest.syncs) == (0, 0, 0)
    assert rest.calls == 1  # the method that calls the two


@pytest.mark.parametrize(
    ("name", "keeps", "passes"),
    [
        ("sgd", None, 1),
        ("sam", None, 2),
        ("vsam", True, 2),
        ("vsam", False, 1),
        ("vsam-a", False, 1),
        ("esam", None, 2),
    ],
)
def test_passes_of_a_step(name: str, keeps: bool | None, passes: int) -> None:
    chosen = entry(name, keeps)
    counts = typical(count_steps(lambda: chosen.make(TINY.build(), SGD), 3), sampled=passes == 2)
    assert counts is not None
    assert counts.passes == passes


def test_both_kinds_are_told_apart_and_every_step_of_a_kind_is_the_same() -> None:
    chosen = entry("sam-5")
    counts = count_steps(lambda: chosen.make(TINY.build(), SGD), 10)
    assert [one.passes for one in counts] == [1 + one.sampled for one in counts]
    assert sum(one.sampled for one in counts) == 2
    assert counts == count_steps(lambda: chosen.make(TINY.build(), SGD), 10)
    assert len({one for one in counts if one.sampled}) == 1


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
