"""A transaction undoes what was done, in the opposite order, once, and also after an interrupt on the way."""

import collections
import random
from collections.abc import Callable

import pytest

from vsam.transaction import Transaction, restorer


class Interrupted(BaseException):
    pass


def fails_once(deed: Callable[[], object]) -> Callable[[], None]:
    """A restorer that is interrupted when it runs for the first time, after its deed."""
    runs: list[None] = []

    def restore() -> None:
        deed()
        runs.append(None)
        if len(runs) == 1:
            raise Interrupted("again")

    return restore


def make(log: list[str]) -> Transaction:
    step = Transaction()
    step.guards += [lambda: log.append("guard 1"), lambda: log.append("guard 2")]
    step.way_back += [lambda: log.append("back 1"), lambda: log.append("back 2")]
    return step


def test_restoring_goes_only_the_way_back_and_only_once() -> None:
    log: list[str] = []
    step = make(log)
    step.restore()
    step.restore()
    assert log == ["back 2", "back 1"]
    assert len(step.guards) == 2


def test_rolling_back_undoes_everything_in_the_opposite_order_and_only_once() -> None:
    log: list[str] = []
    step = make(log)
    step.rollback()
    step.rollback()
    assert log == ["back 2", "back 1", "guard 2", "guard 1"]


def test_a_step_that_is_done_is_not_undone_but_leaves_the_second_pass() -> None:
    log: list[str] = []
    step = make(log)
    generator = random.Random(3)
    step.guard_draws(generator)
    drawn = generator.random()
    step.outcome.append(None)
    step.rollback()
    assert log == ["back 2", "back 1"]
    assert generator.random() != drawn


def test_a_block_that_succeeds_undoes_nothing() -> None:
    log: list[str] = []
    with make(log):
        pass
    assert log == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Interrupted])
def test_a_block_that_fails_undoes_itself_and_says_why(error: type[BaseException]) -> None:
    log: list[str] = []
    with pytest.raises(error, match="why"), make(log):
        raise error("why")
    assert log == ["back 2", "back 1", "guard 2", "guard 1"]


@pytest.mark.parametrize("position", range(4))
def test_a_way_back_that_is_interrupted_is_gone_again_by_the_outer_block(position: int) -> None:
    log: list[str] = []
    step = make(log)
    stack, index = (step.way_back, 1 - position) if position < 2 else (step.guards, 3 - position)
    stack[index] = fails_once(stack[index])
    with pytest.raises(Interrupted, match="again"), step, step:
        raise ValueError("first")
    expected = ["back 2", "back 1", "guard 2", "guard 1"]
    assert log == expected[: position + 1] + expected[position:]  # the interrupted one ran twice, all others once
    assert not step.way_back
    assert not step.guards


def test_draws_are_given_back_by_a_step_that_fails() -> None:
    generators = [random.Random(1), random.Random(2)]
    expected = [random.Random(1).random(), random.Random(2).random()]
    step = Transaction()
    for generator in generators:
        step.guard_draws(generator)
        generator.random()
    step.rollback()
    assert [generator.random() for generator in generators] == expected
    step.undo_draws()
    assert [generator.random() for generator in generators] == expected


class Thing:
    def __init__(self) -> None:
        self.number, self.listed, self.named = 1, [1, 2], {"a": 1}
        self.chosen, self.queue = {1}, collections.deque([1, 2], maxlen=2)
        self.generator = random.Random(0)


def test_an_objects_attributes_and_lists_are_set_back() -> None:
    thing = Thing()
    restore = restorer(thing)
    thing.number = 7
    thing.listed.append(3)
    thing.named["b"] = 2
    thing.chosen.add(2)
    thing.queue.append(3)
    for _ in range(2):
        restore()
        assert vars(thing) | {"generator": None} == vars(Thing()) | {"generator": None}
        assert thing.queue.maxlen == 2


def test_setting_an_object_back_leaves_its_generator_alone() -> None:
    thing = Thing()
    restore, generator = restorer(thing), thing.generator
    drawn = generator.random()
    restore()
    assert thing.generator is generator
    assert generator.random() != drawn
