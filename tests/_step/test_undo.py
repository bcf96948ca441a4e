"""An undo runs its restorers in the opposite order, once, and again after an interrupt on the way."""

import collections
import random
from collections.abc import Callable

import pytest
import torch

from vsam._step.undo import Undo, restorer, rewinder


class Interrupted(BaseException):
    pass


def fails_once(deed: Callable[[], object], error: type[BaseException] = Interrupted) -> Callable[[], None]:
    """A restorer that fails after its deed when it runs for the first time."""
    runs: list[None] = []

    def restore() -> None:
        deed()
        runs.append(None)
        if len(runs) == 1:
            raise error("again")

    return restore


def make(log: list[str], **replaced: Callable[[], None]) -> Undo:
    undo = Undo()
    for name in ("a", "b", "c", "d"):
        undo.push(replaced.get(name, lambda name=name: log.append(name)))
    return undo


def test_going_back_runs_the_latest_first_and_only_once() -> None:
    log: list[str] = []
    undo = make(log)
    undo.back(2)
    assert log == ["d", "c"]
    assert not undo.is_over
    undo.back()
    undo.back()
    assert log == ["d", "c", "b", "a"]
    assert undo.is_over


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Interrupted])
def test_a_block_that_fails_undoes_itself(error: type[BaseException]) -> None:
    log: list[str] = []
    with pytest.raises(error, match="why"), make(log):
        raise error("why")
    assert log == ["d", "c", "b", "a"]


def test_a_block_that_succeeds_undoes_nothing() -> None:
    log: list[str] = []
    with make(log) as undo:
        pass
    assert log == []
    assert not undo.is_over


def test_what_was_moved_is_undone_at_the_end_of_its_block_and_the_rest_is_not() -> None:
    log: list[str] = []
    with make(log) as undo:
        with undo.moved():
            undo.push(lambda: log.append("inner"))
            with undo.moved():
                undo.push(lambda: log.append("innermost"))
            assert log == ["innermost"]
        assert log == ["innermost", "inner"]
    assert log == ["innermost", "inner"]


def test_a_failure_in_a_moved_block_undoes_everything_in_order() -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="why"), make(log) as undo, undo.moved():  # noqa: PT012
        undo.push(lambda: log.append("inner"))
        raise ValueError("why")
    assert log == ["inner", "d", "c", "b", "a"]


def test_a_step_that_is_done_is_not_undone() -> None:
    log: list[str] = []
    with pytest.raises(KeyboardInterrupt), make(log) as undo:  # noqa: PT012
        undo.commit(lambda outcome: outcome.append("done"))
        assert undo.is_over
        raise KeyboardInterrupt
    assert log == []


def test_an_interrupt_right_after_the_step_was_done_undoes_nothing() -> None:
    log: list[str] = []

    def interrupted(outcome: list[str]) -> None:
        outcome.append("done")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), make(log) as undo:
        undo.commit(interrupted)
    assert log == []
    assert undo.is_over


def test_a_commit_that_fails_is_undone() -> None:
    log: list[str] = []

    def fail(outcome: list[str]) -> None:
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"), make(log) as undo:
        undo.commit(fail)
    assert log == ["d", "c", "b", "a"]


@pytest.mark.parametrize("position", range(4))
def test_an_interrupted_undo_is_completed_by_the_outer_block(position: int) -> None:
    log: list[str] = []
    name = "dcba"[position]
    undo = make(log, **{name: fails_once(lambda: log.append(name))})
    with pytest.raises(Interrupted, match="again"), undo, undo:
        raise ValueError("first")
    assert "".join(log) == "dcba"[: position + 1] + "dcba"[position:]  # the interrupted one ran twice, all others once
    assert undo.depth == 0


@pytest.mark.parametrize("position", range(4))
def test_a_restorer_that_fails_does_not_keep_the_others_from_running(position: int) -> None:
    log: list[str] = []
    name = "dcba"[position]
    undo = make(log, **{name: fails_once(lambda: log.append(name), ValueError)})
    with pytest.raises(ValueError, match="again"), undo, undo:
        raise KeyError("first")
    assert "".join(log) == "dcba"


def test_restorers_run_without_a_graph() -> None:
    undo, weight = Undo(), torch.ones(2, requires_grad=True)
    undo.push(lambda: weight.zero_())
    undo.back()
    assert torch.is_grad_enabled()
    assert not weight.any()


def test_generators_are_rewound_together_also_twice() -> None:
    generators = [random.Random(1), random.Random(2)]
    expected = [random.Random(1).random(), random.Random(2).random()]
    rewind = rewinder(generators)
    for _ in range(2):
        assert [generator.random() for generator in generators] == expected
        rewind()


class Others(random.Random):
    """A user-defined generator."""

    def random(self) -> float:
        return super().random() / 2


@pytest.mark.parametrize("kind", [random.Random, Others])
@pytest.mark.parametrize("prepare", [lambda generator: None, lambda generator: generator.gauss(0, 1)])
def test_every_state_of_a_private_generator_is_rewound(
    kind: type[random.Random], prepare: Callable[..., object]
) -> None:
    """Also a normal number that it keeps back, and many more words than it holds."""
    generator = kind(7)
    prepare(generator)
    rewind = rewinder([generator])
    drawn = [generator.random(), generator.gauss(0, 1), generator.getrandbits(32 * 700)]
    for _ in range(2):
        rewind()
        assert [generator.random(), generator.gauss(0, 1), generator.getrandbits(32 * 700)] == drawn


class Thing:
    def __init__(self) -> None:
        self.number, self.listed, self.named = 1, [1, 2], {"a": 1}
        self.chosen, self.queue = {1}, collections.deque([1, 2], maxlen=2)
        self.generator = random.Random(0)


def test_an_objects_attributes_and_lists_are_restored() -> None:
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


def test_restoring_an_object_leaves_its_generator_alone() -> None:
    thing = Thing()
    restore, generator = restorer(thing), thing.generator
    drawn = generator.random()
    restore()
    assert thing.generator is generator
    assert generator.random() != drawn
