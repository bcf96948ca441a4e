"""All generators are wound back, the global ones and the private ones."""

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import vsam
from vsam.rng import RngState, _NumpyState, rewinder

CPU = [torch.device("cpu")]


@pytest.fixture(autouse=True)
def _numpys_own_generator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_NumpyState, "_has_kept_back", False)
    bits = np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(bits)


def draw() -> list[float]:
    """A little of everything; an odd number of normal ones, so that NumPy and Python keep one back."""
    numbers = [random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.normal())]
    return numbers + torch.randn(3).tolist() + np.random.randint(0, 100, 3).tolist()


def gauss_is_kept_back() -> bool:
    return bool(np.random.get_state(legacy=False)["has_gauss"])


def seed() -> None:
    np.random.seed(3)


def keep_one_back() -> None:
    while not gauss_is_kept_back():
        np.random.normal()


def use_what_was_kept_back() -> None:
    keep_one_back()
    np.random.normal()
    assert not gauss_is_kept_back()


def set_a_state_that_keeps_one_back() -> None:
    keep_one_back()
    state = np.random.get_state(legacy=False)
    np.random.rand(1000)
    np.random.set_state(state)
    assert gauss_is_kept_back()


def set_a_state() -> None:
    state = np.random.get_state(legacy=False)
    np.random.rand(1000)
    np.random.set_state(state)


def use_another_kind() -> None:
    np.random.set_bit_generator(np.random.PCG64(5))


def use_another_kind_that_keeps_one_back() -> None:
    np.random.set_bit_generator(np.random.Philox(5))
    np.random.normal()


def use_another_of_the_same_kind() -> None:
    np.random.set_bit_generator(np.random.MT19937(5))


BEFORE = [
    seed,
    keep_one_back,
    use_what_was_kept_back,
    set_a_state_that_keeps_one_back,
    set_a_state,
    use_another_kind,
    use_another_kind_that_keeps_one_back,
    use_another_of_the_same_kind,
    lambda: np.random.rand(700),  # past the end of the 624 words
    lambda: None,
]


@pytest.mark.parametrize("then", BEFORE)
@pytest.mark.parametrize("first", BEFORE)
def test_all_generators_are_wound_back(first: Callable[[], object], then: Callable[[], object]) -> None:
    for prepare in (first, then):
        prepare()
        state = RngState(CPU)
        expected = [draw(), draw()]
        for _ in range(2):
            state.restore()
            assert [draw(), draw()] == expected
        state.restore()


def test_an_older_state_can_be_restored_after_a_newer_one() -> None:
    older = RngState(CPU)
    expected = draw()
    newer = RngState(CPU)
    following = draw()
    newer.restore()
    assert draw() == following
    older.restore()
    assert draw() == expected
    assert draw() == following


def test_a_pass_that_draws_only_what_was_kept_back_is_repeated() -> None:
    """The memory of NumPy's generator does not move then."""
    keep_one_back()
    state = RngState(CPU)
    expected = np.random.normal()
    assert not gauss_is_kept_back()
    state.restore()
    assert gauss_is_kept_back()
    assert np.random.normal() == expected


def test_a_pass_that_draws_only_what_python_kept_back_is_repeated() -> None:
    random.seed(1)
    random.gauss(0, 1)
    state = RngState(CPU)
    expected = random.gauss(0, 1)
    state.restore()
    assert random.gauss(0, 1) == expected


def test_a_state_that_is_set_anew_before_each_step_gives_the_same_numbers() -> None:
    """With a number kept back, it differs from that after the step by nothing that the memory shows."""
    seed()
    keep_one_back()
    saved, drawn = np.random.get_state(), []
    for _ in range(3):
        np.random.set_state(saved)
        begin = RngState(CPU)
        drawn.append(np.random.normal())
        end = RngState(CPU)
        begin.restore()
        drawn.append(np.random.normal())
        end.restore()
        RngState(CPU).restore()  # as by another optimizer, whose pass draws nothing
    assert drawn == 6 * drawn[:1]


def test_a_pass_that_draws_one_normal_number_leaves_none_kept_back() -> None:
    seed()
    state = RngState(CPU)
    expected = np.random.normal()
    assert gauss_is_kept_back()
    state.restore()
    assert not gauss_is_kept_back()
    assert np.random.normal() == expected


def test_a_generator_that_has_not_moved_is_read_once() -> None:
    seed()
    assert RngState(CPU)._numpy is RngState(CPU)._numpy
    np.random.rand()
    first = RngState(CPU)._numpy
    assert RngState(CPU)._numpy is first
    np.random.seed(4)
    assert RngState(CPU)._numpy is not first


def test_both_passes_draw_alike_and_the_next_step_draws_anew() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer, seen = vsam.SAM(SGD([weight], lr=0.1)), []  # type: vsam.SAM, list[list[float]]

    def closure() -> Tensor:
        seen.append(draw())
        loss = weight.square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[4] == seen[5]
    assert seen[0] != seen[2] != seen[4]


def test_a_generator_that_wraps_around_has_moved() -> None:
    """After 624 words the position is the same again."""
    for draw_words in (lambda: random.getrandbits(32 * 624), lambda: np.random.bytes(4 * 624)):
        random.seed(1)
        np.random.seed(1)
        random.random(), np.random.rand()
        state = RngState(CPU)
        expected = draw()
        state.restore()
        draw_words()
        state.restore()
        assert draw() == expected


class Others(random.Random):
    """A generator of somebody's own."""

    def random(self) -> float:
        return super().random() / 2


@pytest.mark.parametrize("kind", [random.Random, Others])
@pytest.mark.parametrize("prepare", [lambda generator: None, lambda generator: generator.gauss(0, 1)])
def test_a_private_generator_is_wound_back(kind: type[random.Random], prepare: Callable[..., object]) -> None:
    generator = kind(7)
    prepare(generator)
    before = generator.getstate()
    rewind = rewinder(generator)
    drawn = [generator.random(), generator.gauss(0, 1), generator.getrandbits(32 * 700)]
    for _ in range(2):
        rewind()
        assert generator.getstate() == before
        assert [generator.random(), generator.gauss(0, 1), generator.getrandbits(32 * 700)] == drawn
