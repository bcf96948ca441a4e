"""Unused gradients are noticed, Ctrl-C waits for the hand-over, and fused bases may skip a step by themselves."""

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import vsam
from vsam.bases import Joined, bases_of
from vsam.hand_over import HandOver, Uninterrupted, has_fresh_gradient, mark_consumed

Make = Callable[[list[nn.Parameter]], Optimizer]
BASES: dict[str, Make] = {
    "one": lambda parameters: SGD(parameters, lr=0.1),
    "fused": lambda parameters: AdamW(parameters, lr=0.1, fused=True),
    "joined": lambda parameters: Joined([SGD(parameters[:2], lr=0.1), AdamW(parameters[2:], lr=0.1)]),
}


@pytest.fixture(autouse=True)
def _an_ordinary_ctrl_c() -> Iterator[None]:
    """The background of a shell ignores it."""
    with handled_by(signal.default_int_handler):
        yield


@pytest.fixture(params=BASES)
def make(request: pytest.FixtureRequest) -> Make:
    return BASES[request.param]


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(3) * (i + 1)) for i in range(4)]


def backward(values: list[nn.Parameter]) -> None:
    sum(value.square().sum() for value in values).backward()  # type: ignore[union-attr]


def is_fresh(hand_over: HandOver, values: list[Any]) -> bool:
    """What a step asks: held gradients need no marks."""
    return not hand_over.held.is_still(values) and hand_over.found_fresh_gradient()


def test_there_is_nothing_fresh_without_gradients(make: Make) -> None:
    assert not has_fresh_gradient(make(parameters()))


def test_a_gradient_is_fresh_until_the_base_steps(make: Make) -> None:
    values = parameters()
    base = make(values)
    hand_over, outcome = HandOver(bases_of(base)), []  # type: list[Any]
    backward(values)
    assert has_fresh_gradient(base)
    for _ in range(2):
        hand_over(outcome, values, None, values)  # type: ignore[arg-type]
        assert not has_fresh_gradient(base)  # what is left of the gradients is stale, and fine
    assert len(outcome) == 2


def test_held_gradients_are_looked_at_without_marks(make: Make) -> None:
    values = parameters()
    base = make(values)
    hand_over = HandOver(bases_of(base))
    for changed in range(len(values)):
        base.zero_grad()
        backward(values)
        hand_over([], values, None, values)  # type: ignore[arg-type]
        assert not is_fresh(hand_over, values)
        assert not any(value.grad.__dict__ for value in values if value.grad is not None)
        values[changed].square().sum().backward()
        assert is_fresh(hand_over, values)


def test_a_gradient_that_replaces_a_held_one_is_fresh(make: Make) -> None:
    values = parameters()
    base = make(values)
    hand_over = HandOver(bases_of(base))
    backward(values)
    hand_over([], values, None, values)  # type: ignore[arg-type]
    values[0].grad = None
    assert not is_fresh(hand_over, values)
    values[0].square().sum().backward()
    assert is_fresh(hand_over, values)


def test_what_one_hand_over_holds_is_not_fresh_to_another(make: Make) -> None:
    values = parameters()
    base = make(values)
    one, other = HandOver(bases_of(base)), HandOver(bases_of(base))
    for _ in range(2):
        backward(values)
        one([], values, None, values)  # type: ignore[arg-type]
        assert not is_fresh(other, values)
        backward(values)
        assert is_fresh(other, values)
        other([], values, None, values)  # type: ignore[arg-type]
        assert not is_fresh(one, values)


def test_held_gradients_go_when_they_are_dropped(make: Make) -> None:
    values = parameters()
    hand_over = HandOver(bases_of(make(values)))
    backward(values)
    hand_over([], values, None, values)  # type: ignore[arg-type]
    alive = weakref.ref(values[0].grad)
    values[0].grad = None
    assert alive() is not None
    hand_over.drop()
    assert alive() is None


def test_a_base_that_the_user_steps_has_used_its_gradients_too(make: Make) -> None:
    values = parameters()
    base = make(values)
    for own in bases_of(base):
        HandOver([own])
    backward(values)
    base.step()
    assert not has_fresh_gradient(base)


@pytest.mark.parametrize("position", range(4))
def test_accumulation_is_noticed_wherever_it_happens(make: Make, position: int) -> None:
    values = parameters()
    base = make(values)
    backward(values)
    mark_consumed(base)
    assert not has_fresh_gradient(base)
    backward([values[position]])
    assert has_fresh_gradient(base)


@pytest.mark.parametrize("position", range(4))
def test_one_gradient_alone_is_noticed(make: Make, position: int) -> None:
    values = parameters()
    base = make(values)
    backward([values[position]])
    assert has_fresh_gradient(base)
    mark_consumed(base)
    assert not has_fresh_gradient(base)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_cleared_gradients_are_not_fresh_and_new_ones_are(make: Make, set_to_none: bool) -> None:
    values = parameters()
    base = make(values)
    backward(values)
    base.zero_grad(set_to_none)
    assert not has_fresh_gradient(base)
    backward(values)
    assert has_fresh_gradient(base)


def test_a_gradient_that_is_not_finite_is_fresh(make: Make) -> None:
    values = parameters()
    base = make(values)
    backward(values)
    base.zero_grad(False)
    for bad in (torch.nan, torch.inf):
        values[-1].grad = torch.full((3,), bad)
        assert has_fresh_gradient(base)


def test_a_sparse_gradient_is_fresh() -> None:
    embedding = nn.Embedding(5, 2, sparse=True)
    base = SGD(embedding.parameters(), lr=0.1)
    embedding(torch.tensor([1])).sum().backward()
    assert has_fresh_gradient(base)
    mark_consumed(base)
    assert not has_fresh_gradient(base)


def test_an_optimizer_counts_its_base_once_however_often_it_is_loaded() -> None:
    values = parameters()
    base = SGD(values, lr=0.1)
    for _ in range(3):
        optimizer = vsam.SAM(base)
        optimizer.load_state_dict(optimizer.state_dict())
    assert list(base._optimizer_step_post_hooks.values()) == [mark_consumed]


def test_all_bases_are_stepped_in_order_and_the_outcome_says_so() -> None:
    values, order = parameters(), []  # type: list[nn.Parameter], list[int]
    bases: list[Optimizer] = [SGD([value], lr=0.1) for value in values]
    for i, base in enumerate(bases):
        base.register_step_pre_hook(lambda *_, i=i: order.append(i))
    backward(values)
    outcome: list[Any] = []
    HandOver(bases)(outcome, values, None, values)  # type: ignore[arg-type]
    assert order == [0, 1, 2, 3]
    assert len(outcome) == 1
    for i, value in enumerate(values):
        torch.testing.assert_close(value.detach(), torch.full((3,), (i + 1) * 0.8))


def test_a_base_that_fails_leaves_no_outcome_and_the_signal_handler_as_it_was() -> None:
    values, outcome = parameters(), []  # type: list[nn.Parameter], list[Any]
    base = SGD(values, lr=0.1)

    def fail(*_: object) -> None:
        raise ValueError("no")

    base.register_step_pre_hook(fail)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="no"):
        HandOver([base])(outcome, values, None, values)  # type: ignore[arg-type]
    assert outcome == []
    assert signal.getsignal(signal.SIGINT) is before


FUSED: dict[str, Callable[[list[nn.Parameter]], list[Optimizer]]] = {
    "SGD": lambda values: [SGD(values, lr=0.1, momentum=0.9, fused=True)],
    "AdamW": lambda values: [AdamW(values, lr=0.1, fused=True)],
    "both": lambda values: [SGD(values[:2], lr=0.1, fused=True), AdamW(values[2:], lr=0.1, fused=True)],
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_bases_skip_by_themselves_after_their_first_step(name: str) -> None:
    values: list[Any] = parameters()
    bases = FUSED[name](values)
    hand_over = HandOver(bases)
    backward(values)
    assert not hand_over.may_defer(values)  # a skipped first step would leave no state
    hand_over([], values, None, values)
    assert hand_over.may_defer(values)
    assert not hand_over.may_defer(list(values))  # others may have no state yet
    before = [value.detach().clone() for value in values]
    hand_over([], values, torch.tensor(1.0), values)
    assert all(torch.equal(value, kept) for value, kept in zip(values, before, strict=True))
    hand_over([], values, torch.tensor(0.0), values)
    assert not any(torch.equal(value, kept) for value, kept in zip(values, before, strict=True))
    assert not any(name in vars(base) for base in bases for name in ("found_inf", "grad_scale"))


def test_bases_defer_only_if_all_groups_of_all_are_fused() -> None:
    values: list[Any] = parameters()
    for bases in (
        [SGD(values, lr=0.1)],
        [SGD(values[:2], lr=0.1, fused=True), AdamW(values[2:], lr=0.1)],
        [SGD([{"params": values[:2], "fused": True}, {"params": values[2:], "fused": False}], lr=0.1)],
        [torch.optim.RMSprop(values, lr=0.1)],
    ):
        hand_over = HandOver(bases)  # type: ignore[arg-type]
        backward(values)
        hand_over([], values, None, values)
        assert not hand_over.may_defer(values)


@contextlib.contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_arrives_after_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012, SIM117
        with Uninterrupted():
            interrupt()
            done.append("the rest")
    assert done == ["the rest"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_without_an_interrupt_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Uninterrupted():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_in_the_block_does_not_swallow_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, Uninterrupted():  # noqa: PT012
        interrupt()
        raise ValueError("first")
    assert isinstance(caught.value.__context__, ValueError)


def test_blocks_may_be_nested() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():  # noqa: PT012
        with Uninterrupted():
            interrupt()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_the_users_own_handler_is_called_once_after_the_block() -> None:
    arrived: list[int] = []
    with handled_by(lambda number, frame: arrived.append(number)):
        own = signal.getsignal(signal.SIGINT)
        with Uninterrupted():
            interrupt()
            assert arrived == []
        assert arrived == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is own


def test_an_ignored_interrupt_stays_ignored() -> None:
    with handled_by(signal.SIG_IGN):
        with Uninterrupted():
            interrupt()
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        interrupt()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_the_default_action_stays() -> None:
    with handled_by(signal.SIG_DFL):
        with Uninterrupted():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL


def test_another_thread_may_enter_too_and_leaves_the_handler_alone() -> None:
    before, done = signal.getsignal(signal.SIGINT), []  # type: Any, list[bool]

    def run() -> None:
        with Uninterrupted():
            done.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]


def test_an_interrupt_while_the_base_steps_leaves_a_step_that_is_done() -> None:
    values: list[Any] = parameters()
    base = SGD(values, lr=0.1)
    base.register_step_pre_hook(lambda *_: interrupt())
    optimizer = vsam.SAM(base)

    def closure() -> Tensor:
        loss = sum(value.square().sum() for value in values)
        loss.backward()
        return loss

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert optimizer.num_samples == 1
    assert not has_fresh_gradient(base)
    assert all(bool((value < i + 1).all()) for i, value in enumerate(values))


def test_gradients_that_a_hook_of_the_base_replaces_are_not_fresh() -> None:
    model = nn.Linear(3, 2)
    base = SGD(model.parameters(), lr=0.1)

    def centre(*_: object) -> None:
        assert model.weight.grad is not None
        model.weight.grad = model.weight.grad - model.weight.grad.mean()

    base.register_step_pre_hook(centre)
    optimizer = vsam.SAM(base, model=model)
    for _ in range(3):
        optimizer.step(lambda: model(torch.ones(4, 3)).square().sum().backward())
    assert optimizer.num_samples == 3
