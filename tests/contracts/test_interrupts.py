"""Ctrl-C at every line of a step: everything is as before, or the step is done."""

import copy
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import vsam
from contract_table import LENGTH, LOOPING, METHODS, Run, assert_same, generators, set_generators

PACKAGE = str(Path(vsam.__file__).parent)


class _Interrupt:
    """Raise at the given line that the package runs. Without a line, count all lines."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.num_lines = at, 0
        self.place = ""

    def __enter__(self) -> "_Interrupt":
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.num_lines += 1
            if self.num_lines == self.at:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace


def _look(run: Run) -> dict[str, Any]:
    """Return everything that a user sees without touching the optimizer, and then the optimizer."""
    return {
        "model": {name: value.clone() for name, value in run.model.state_dict().items()},
        "modes": [module.training for module in run.model.modules()],
        "tracks": [getattr(module, "track_running_stats", None) for module in run.model.modules()],
        "names": [sorted(vars(module)) for module in run.model.modules()],
        "generators": generators(),
        "takes gradients": torch.is_grad_enabled(),
        "optimizer": run.everything()["optimizer"],
    }


def _put_back(run: Run, before: dict[str, Any]) -> None:
    run.optimizer.zero_grad()
    run.model.load_state_dict(before["model"])
    run.optimizer.load_state_dict(copy.deepcopy(before["optimizer"]))
    set_generators(before["generators"])


def _closure(run: Run, number: int) -> Callable[[], object]:
    return lambda: run.optimizer.step(run.closure(number))


def _perturb(run: Run, number: int) -> Callable[[], object]:
    return run.optimizer.perturb


def _second_half(run: Run, number: int) -> Callable[[], object]:
    if run.optimizer.perturb():
        run.loss(number).backward()
    return run.optimizer.step


def _try_every_line(run: Run, number: int, prepare: Callable[[Run, int], Callable[[], object]], every: int) -> int:
    """Interrupt one step of the run at its lines, and return the number of interrupts."""
    loops = prepare is not _closure

    def begin() -> Callable[[], object]:
        run.optimizer.zero_grad()
        if loops:
            run.loss(number).backward()
        return prepare(run, number)

    start = _look(run)
    begin()
    run.optimizer.zero_grad()  # as after the first pass of a loop
    before = _look(run)
    _put_back(run, start)
    action = begin()
    with _Interrupt() as counter:
        action()
    after = None if prepare is _perturb else _look(run)
    tried = range(1 + number % every, counter.num_lines + 1, every)
    for at in tried:
        _put_back(run, start)
        action = begin()
        interrupt = _Interrupt(at)
        with suppress(KeyboardInterrupt), interrupt:
            action()
        assert interrupt.place or at > counter.num_lines - 20  # not each step has the same number of lines
        if loops and run.optimizer.is_second_pass:  # perturb() is done, step() had not begun: the loop goes on or not
            lines = interrupt.num_lines if prepare is _second_half else counter.num_lines - interrupt.num_lines
            assert lines < 20, interrupt.place
            run.optimizer.zero_grad()
        seen = _look(run)
        is_done = seen["optimizer"]["sharpness"]["num_steps"] != before["optimizer"]["sharpness"]["num_steps"]
        assert_same(seen, after if is_done else before, f"after an interrupt at {interrupt.place}, it")
    _put_back(run, start)
    run.optimizer.zero_grad()
    return len(tried)


CASES = [
    *((method, _closure) for method in METHODS),
    *((method, prepare) for method in LOOPING for prepare in (_perturb, _second_half)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "prepare"), [pytest.param(m, p, id=f"{m}{p.__name__}") for m, p in CASES])
def test_everything_is_as_before_or_the_step_is_done(method: str, prepare: Callable[..., Any]) -> None:
    run, kinds = Run(method, "momentum"), set()
    every = 1 if method in ("sam", "vsam") else 5
    for number in range(LENGTH):
        samples = run.optimizer.will_sample
        if samples not in kinds and number > 1:
            kinds.add(samples)
            assert _try_every_line(run, number, prepare, every) > 5
        run.step(number)
    assert len(kinds) >= 1


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """In the background of a shell, Ctrl-C is ignored."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("_interruptible")
def test_a_real_signal_in_the_hand_over_waits_for_it() -> None:
    """The base optimizer's step cannot be undone, so that it is not cut in two."""

    run = Run("vsam", "momentum").go(last=2)
    base_step = type(run.optimizer.base).step
    seen: list[str] = []

    def hook(*_: object) -> None:
        seen.append("before")
        signal.raise_signal(signal.SIGINT)
        seen.append("after")

    handle = run.optimizer.base.register_step_pre_hook(hook)
    with pytest.raises(KeyboardInterrupt):
        run.step(2)
    handle.remove()
    assert seen == ["before", "after"]
    assert type(run.optimizer.base).step is base_step
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    expected = Run("vsam", "momentum").go(last=3)
    assert_same(run.weights(), expected.weights())
    assert_same(run.optimizer.state_dict(), expected.optimizer.state_dict())


def test_a_loop_goes_on_after_an_interrupt() -> None:
    """As in a notebook: the cell is run again."""
    run, expected = Run("vsam", "momentum"), Run("vsam", "momentum").go(last=6)
    seeds = Run("vsam", "momentum")  # seeds the generators again
    del seeds
    for number in range(6):
        before = run.everything()
        for at in (30, 60, 90, 120):
            with _Interrupt(at):
                try:
                    run.optimizer.step(run.closure(number))
                except KeyboardInterrupt:
                    continue
                raise AssertionError("the step has fewer lines")
        assert_same(run.everything(), before)
        run.step(number)
    assert_same(run.weights(), expected.weights())


def test_the_second_pass_can_be_interrupted() -> None:
    run = Run("sam").go(last=2)
    before, passes = run.everything(), []

    def interrupt() -> None:
        passes.append(torch.is_grad_enabled())
        if len(passes) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.optimizer.step(run.closure(2, after=interrupt))
    assert_same(run.everything(), before)
