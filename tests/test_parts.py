"""Promises of every part: its `repr` rebuilds it, its state survives a file, and it describes itself."""

import dataclasses
import random
from inspect import signature
from typing import Any

import pytest
import torch

import vsam
from contract_table import through_a_file
from vsam.parts import Part, When, Where

KINDS = [getattr(vsam, name) for part in (vsam.when, vsam.where, vsam.between) for name in part.__all__]
PARTS: list[Part] = [
    *(
        kind()
        for kind in KINDS
        if kind is not vsam.GradientThreshold
        and not any(one.default is one.empty for one in signature(kind).parameters.values())
    ),
    vsam.Every(1),
    vsam.Every(7),
    vsam.Tail(0.25, total_steps=100),
    vsam.Bernoulli(0.3, seed=4),
    vsam.Even(0.3),
    vsam.GradientThreshold(100),
    vsam.GradientThreshold(total_steps=3, delta=0.0, low=-2.5, high=1e-3),
    vsam.Variation(0.13, 12, 3, 0, 2.5, 1.5, 0.9, None, 17),
    vsam.ReleasedVariation(alpha=0, window=20, slices=10, start=1173, watch=1),
    vsam.GlobalNorm(0),
    vsam.AdaptiveNorm(rho=2, eta=0),
    vsam.GlobalNorm(0.1, only="norm"),
    vsam.PartOfBatch(0.1, 0.3, only="norm"),
    vsam.Momentum(0.05, sign=1, only="norm"),
    vsam.RandomSubset(rho=0.1, beta=1, seed=4),
    vsam.Displaced(vsam.Momentum(0.05, sign=1)),
    vsam.SurrogateGap(0),
    vsam.Weighted(0.5),
    vsam.Decayed(1, 0.9**6),
    vsam.Orthogonal(0.7),
]


def work(part: Part) -> None:
    """Let a part run for a while, so that its state is not the first one."""
    draws = random.Random(5)
    if isinstance(part, Where):
        part.perturb_([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(3)], [0.1, 0.1], torch.tensor(5**0.5))
    if not isinstance(part, When):
        return
    for step in range(1, 151):
        was_sampled = part.before(step)
        if was_sampled is None:
            was_sampled = part.after(step, draws.random())
        if was_sampled and part.watch != 0:
            part.observe(torch.tensor(draws.random()), torch.tensor(draws.random()))
        part.advance(step, was_sampled, was_skipped=False)


def test_every_part_of_the_library_is_in_the_table() -> None:
    exported = {value for name in vsam.__all__ if isinstance(value := getattr(vsam, name), type)}
    parts = {kind for kind in exported if issubclass(kind, Part) and not getattr(kind, "__abstractmethods__", None)}
    assert parts == {type(part) for part in PARTS}


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_repr_rebuilds_it(part: Part) -> None:
    again = eval(repr(part), vars(vsam).copy())
    assert type(again) is type(part)
    assert repr(again.settings()) == repr(part.settings())
    assert repr(again) == repr(part)


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_its_state_survives_a_file(part: Part) -> None:
    worked = eval(repr(part), vars(vsam).copy())
    work(worked)
    state = worked.state_dict()
    again = eval(repr(part), vars(vsam).copy())
    again.load_state_dict(through_a_file(state))
    assert again.state_dict() == state
    work(worked)
    work(again)
    assert again.state_dict() == worked.state_dict()


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_a_saved_state_is_not_changed_by_going_on(part: Part) -> None:
    worked = eval(repr(part), vars(vsam).copy())
    work(worked)
    state, kept = worked.state_dict(), through_a_file(worked.state_dict())
    other = eval(repr(part), vars(vsam).copy())
    other.load_state_dict(state)
    work(worked)
    work(other)
    assert {name: _plain(value) for name, value in state.items()} == {n: _plain(v) for n, v in kept.items()}


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_it_says_what_it_does_as_the_end_of_a_sentence(part: Part) -> None:
    words = part.describe()
    assert words
    assert words[0].islower()
    assert not words.endswith(".")


def test_the_settings_in_use_are_the_ones_given() -> None:
    when = vsam.Variation(0.13, 12, 3, 4, 2.5, 1.5, 0.9, None, 17)
    names = ("alpha", "window", "slices", "start", "initial_samples", "min_samples", "max_rate", "watch", "seed")
    assert when.settings() == dict(zip(names, (0.13, 12, 3, 4, 2.5, 1.5, 0.9, None, 17), strict=True))


def test_vsams_defaults_are_those_of_its_law() -> None:
    expected = {
        "alpha": 0.1,
        "window": 50,
        "slices": 5,
        "start": 100,
        "initial_samples": 1,
        "min_samples": 1,
        "max_rate": 0.8,
        "watch": 10,
        "seed": 0,
    }
    rule = {field.name: field.default for field in dataclasses.fields(vsam.Variation)}
    arguments = signature(vsam.VSAM).parameters
    assert rule == expected
    assert {name: arguments[name].default for name in rule} == expected


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


class Coin(When):
    """A user-defined rule that draws, and leaves saving to the base class."""

    rate = 0.5

    def __init__(self) -> None:
        self.generator = random.Random(1)

    def before(self, step: int) -> bool:
        return self.generator.random() < self.rate

    def describe(self) -> str:
        return "takes the second gradient by a coin"


def test_the_generator_of_a_user_defined_part_is_saved() -> None:
    part, later = Coin(), Coin()
    for step in range(5):
        part.before(step)
    later.load_state_dict(through_a_file(part.state_dict()))
    assert [later.before(step) for step in range(20)] == [part.before(step) for step in range(20)]
    with pytest.raises(ValueError, match="generator"):
        later.load_state_dict({})
