"""The bases step in order, all or with an error that names those that did, and Ctrl-C waits for them."""

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import vsam
from vsam._step import foreach


@pytest.fixture(autouse=True)
def _an_ordinary_ctrl_c() -> Iterator[None]:
    """The background of a shell ignores it."""
    with handled_by(signal.default_int_handler):
        yield


@contextlib.contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(3) * (i + 1)) for i in range(4)]


def take_step(optimizer: vsam.SharpnessAware, factor: float = 1.0) -> None:
    values = [value for group in optimizer.param_groups for value in group["params"]]

    def closure() -> Tensor:
        loss = sum(value.square().sum() for value in values) * factor
        loss.backward()
        return loss

    optimizer.step(closure)


def num_steps(optimizer: vsam.SharpnessAware) -> int:
    return int(optimizer.state_dict()["sharpness"]["num_steps"])


def test_all_bases_step_in_order() -> None:
    values, order = parameters(), []  # type: list[nn.Parameter], list[int]
    bases = [SGD([value], lr=0.1) for value in values]
    for i, base in enumerate(bases):
        base.register_step_pre_hook(lambda *_, i=i: order.append(i))
    take_step(vsam.SAM(bases, rho=0.0))
    assert order == [0, 1, 2, 3]
    for i, value in enumerate(values):
        torch.testing.assert_close(value.detach(), torch.full((3,), (i + 1) * 0.8))


def test_a_base_that_fails_leaves_weights_and_the_signal_handler_as_they_were() -> None:
    values = parameters()
    base = SGD(values, lr=0.1)

    def fail(*_: object) -> None:
        raise ValueError("no")

    base.register_step_pre_hook(fail)
    optimizer, before = vsam.SAM(base), signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="no"):
        take_step(optimizer)
    assert num_steps(optimizer) == 0
    assert all(torch.equal(value, torch.full((3,), i + 1.0)) for i, value in enumerate(values))
    assert signal.getsignal(signal.SIGINT) is before


FUSED: dict[str, Callable[[list[nn.Parameter]], list[Optimizer]]] = {
    "SGD": lambda values: [SGD(values, lr=0.1, momentum=0.9, fused=True)],
    "AdamW": lambda values: [AdamW(values, lr=0.1, fused=True)],
    "both": lambda values: [SGD(values[:2], lr=0.1, fused=True), AdamW(values[2:], lr=0.1, fused=True)],
}
NOT_FUSED: dict[str, Callable[[list[nn.Parameter]], list[Optimizer]]] = {
    "SGD": lambda values: [SGD(values, lr=0.1)],
    "one base of two": lambda values: [SGD(values[:2], lr=0.1, fused=True), AdamW(values[2:], lr=0.1)],
    "one group of two": lambda values: [
        SGD([{"params": values[:2]}, {"params": values[2:], "fused": False}], lr=0.1, fused=True)
    ],
    "RMSprop": lambda values: [torch.optim.RMSprop(values, lr=0.1)],
}


def _calls_of_skipped_steps(bases: list[Optimizer], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let the first, third and fourth step be skipped on a device. Return for which of four the first base ran."""
    monkeypatch.setattr(foreach, "HOST", "nowhere")
    calls: list[bool] = []
    bases[0].register_step_pre_hook(lambda *_: calls.append(True))
    optimizer, seen = vsam.SAM(bases), []
    values = [value for base in bases for group in base.param_groups for value in group["params"]]
    for factor in (math.nan, 1.0, math.inf, math.nan):
        calls.clear()
        before = [value.detach().clone() for value in values]
        take_step(optimizer, factor)
        are_same = all(torch.equal(value, kept) for value, kept in zip(values, before, strict=True))
        assert are_same is (factor != 1)
        assert not any(name in vars(base) for base in bases for name in ("found_inf", "grad_scale"))
        seen.append(bool(calls))
    assert optimizer.num_skipped == 3
    return seen


@pytest.mark.filterwarnings("ignore:A gradient was not finite")
@pytest.mark.parametrize("name", FUSED)
def test_fused_bases_skip_by_themselves_after_their_first_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skipped first step would leave them without state."""
    assert _calls_of_skipped_steps(FUSED[name](parameters()), monkeypatch) == [False, True, True, True]


@pytest.mark.filterwarnings("ignore:A gradient was not finite")
@pytest.mark.parametrize("name", NOT_FUSED)
def test_bases_skip_by_themselves_only_if_all_groups_of_all_are_fused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _calls_of_skipped_steps(NOT_FUSED[name](parameters()), monkeypatch) == [False, True, False, False]


def test_fused_bases_are_asked_again_after_their_state_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreach, "HOST", "nowhere")
    values = parameters()
    base = AdamW(values, lr=0.1, fused=True)
    optimizer = vsam.SAM(base)
    empty = optimizer.state_dict()
    take_step(optimizer)
    optimizer.load_state_dict(empty)
    with pytest.warns(RuntimeWarning, match="not finite"):
        take_step(optimizer, math.nan)
    assert not base.state


# Ctrl-C while the bases step


def _interrupted_twice(hooks: list[Callable[..., object]]) -> tuple[vsam.SAM, list[nn.Parameter]]:
    values = parameters()
    bases = [SGD(values[:2], lr=0.1), SGD(values[2:], lr=0.1)]
    for base, hook in zip(bases, hooks, strict=True):
        base.register_step_pre_hook(hook)
    return vsam.SAM(bases), values


def test_an_interrupt_arrives_after_all_bases_have_stepped() -> None:
    optimizer, values = _interrupted_twice([interrupt, interrupt])
    with pytest.raises(KeyboardInterrupt):
        take_step(optimizer)
    assert num_steps(optimizer) == optimizer.num_samples == 1
    assert all(bool((value < i + 1).all()) for i, value in enumerate(values))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        take_step(optimizer)  # the gradients that the first one left count as used
    assert num_steps(optimizer) == 2


def test_an_error_of_a_base_does_not_swallow_the_interrupt() -> None:
    def fail(*_: object) -> None:
        interrupt()
        raise ValueError("first")

    optimizer, values = _interrupted_twice([fail, interrupt])
    with pytest.raises(KeyboardInterrupt) as caught:
        take_step(optimizer)
    assert isinstance(caught.value.__context__, ValueError)
    assert num_steps(optimizer) == 0
    assert all(torch.equal(value, torch.full((3,), i + 1.0)) for i, value in enumerate(values))


def test_the_users_own_handler_is_called_once_after_the_step() -> None:
    arrived: list[bool] = []
    optimizer, values = _interrupted_twice([interrupt, interrupt])
    with handled_by(lambda number, frame: arrived.append(bool((values[-1] < 4).all()))):
        own = signal.getsignal(signal.SIGINT)
        take_step(optimizer)
        assert signal.getsignal(signal.SIGINT) is own
    assert arrived == [True]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_no_function_stays(handler: Any) -> None:
    seen: list[Any] = []
    optimizer, _ = _interrupted_twice([lambda *_: seen.append(signal.getsignal(signal.SIGINT))] * 2)
    with handled_by(handler):
        take_step(optimizer)
        assert [*seen, signal.getsignal(signal.SIGINT)] == [handler] * 3


def test_another_thread_may_step_and_leaves_the_handler_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []  # type: Any, list[bool]
    optimizer, _ = _interrupted_twice([lambda *_: seen.append(signal.getsignal(signal.SIGINT) is before)] * 2)
    thread = threading.Thread(target=take_step, args=(optimizer,))
    thread.start()
    thread.join()
    assert seen == [True, True]
    assert num_steps(optimizer) == 1
