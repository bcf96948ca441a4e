"""Count a step's operators, Python calls and device syncs beyond its passes and its base. They do not grow.

The counts are exact for one version of Python and torch; on others they are not compared.
"""

import gc
import os
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vsam
from benchmarks.counts import Counts, count_steps, typical
from vsam._step import foreach

THE_VERSIONS = sys.version_info[:2] == (3, 11) and torch.__version__.startswith("2.13.")

# Beyond passes and base, with 102 tensors: operators, Python calls, device syncs, as `benchmarks/step_cost.py` prints.
ALLOWED = {
    ("sam", True): (128, 242, 1),
    ("vsam", True): (443, 353, 1),
    ("vsam", False): (11, 170, 1),
    ("looksam", False): (118, 179, 1),
}
METHODS: dict[tuple[str, bool], Callable[..., vsam.SharpnessAware]] = {
    ("sam", True): vsam.SAM,
    ("vsam", True): lambda base, **options: vsam.VSAM(base, start=10**6, **options),
    ("vsam", False): lambda base, **options: vsam.VSAM(base, start=1, alpha=0, seed=3, **options),
    ("looksam", False): lambda base, **options: vsam.LookSAM(base, every=10**6, **options),
}
OPERATORS, CALLS, SYNCS = range(3)
PACKAGE = f"{Path(vsam.__file__).parent}{os.sep}"


class _Training:
    """Return the deep narrow network in training, by its base alone without a method."""

    def __init__(self, make: Callable[..., vsam.SharpnessAware] | None = None, **settings: Any) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(50) for layer in (nn.Linear(16, 16), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.Linear(16, 4))
        self.parameters, self.inputs = list(self.model.parameters()), torch.randn(8, 16)
        base = torch.optim.SGD(self.model.parameters(), lr=1e-9, momentum=0.9, **settings)
        self.optimizer: Any = base if make is None else make(base, model=self.model)
        self.is_base = make is None

    @property
    def num_sampled(self) -> int:
        return 0 if self.is_base else self.optimizer.num_samples

    def closure(self) -> Tensor:
        loss = self.model(self.inputs).square().mean()
        loss.backward()
        return loss

    def run_pass(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        self.closure()

    def step(self) -> None:
        if self.is_base:
            self.run_pass()
            self.optimizer.step()
        else:
            self.optimizer.step(self.closure)


class _Pass(_Training):
    step = _Training.run_pass


def _added(key: tuple[str, bool], **settings: Any) -> tuple[int, int, int]:
    counts = count_steps(lambda: _Training(METHODS[key], **settings), num_steps=8, warm_up=3)
    step = typical(counts, sampled=key[1])
    single, base = (typical(count_steps(make, num_steps=4, warm_up=3), sampled=False) for make in (_Pass, _Training))
    assert step is not None
    assert single is not None
    assert base is not None
    zero = Counts(False, 0, 0, 0, 0)
    own = base.beyond(1, single, zero)
    rest = step.beyond(1 + key[1], single, own)
    return rest.operators, rest.calls, rest.syncs


@pytest.mark.skipif(not THE_VERSIONS, reason="counts depend on the versions of Python and torch")
@pytest.mark.parametrize("key", ALLOWED, ids=str)
def test_nothing_has_grown(key: tuple[str, bool]) -> None:
    added = _added(key)
    assert all(one <= other for one, other in zip(added, ALLOWED[key], strict=True)), (added, ALLOWED[key])
    assert added[OPERATORS] > 2  # or nothing was counted


def test_the_page_says_what_is_allowed() -> None:
    page = " ".join((Path(__file__).parents[1] / "docs" / "costs.md").read_text().split())
    sam, sampled, plain = (ALLOWED[key][CALLS] for key in (("sam", True), ("vsam", True), ("vsam", False)))
    assert f"at most {sam} Python calls for SAM, {sampled} for a sampled and {plain} for a plain vSAM step" in page
    assert f"Tensors of fewer than {foreach._SMALL:,} elements" in page


def test_ten_thousand_tensors_cost_as_much_each_as_a_hundred() -> None:
    """Nothing in a step is quadratic: Python calls do not depend on the number of tensors, executed lines linearly."""

    def counted(num_tensors: int, set_counter: Callable[[Any], None], counted_event: str) -> int:
        parameters = [nn.Parameter(torch.ones(3)) for _ in range(num_tensors)]
        gradients = [torch.ones(3) for _ in parameters]
        optimizer = vsam.VSAM(torch.optim.SGD(parameters, lr=0.1, foreach=True), start=3)

        def closure() -> None:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()

        optimizer.step(closure)
        events = [0]

        def note(frame: Any, event: str, argument: Any) -> Any:
            if not frame.f_code.co_filename.startswith(PACKAGE):
                return None
            events[0] += event == counted_event
            return note

        before = sys.gettrace()
        set_counter(note)
        try:
            optimizer.step(closure)
        finally:
            set_counter(before if set_counter is sys.settrace else None)
        return events[0]

    assert counted(10_000, sys.setprofile, "call") == counted(100, sys.setprofile, "call")
    lines = [counted(number, sys.settrace, "line") for number in (100, 1_000)]
    assert lines[1] - lines[0] < 24 * (1_000 - 100), "lines of a step, among them each turn of a loop"


def test_long_runs_keep_their_memory() -> None:
    """Eight hundred windows of steps with draws, samples and records leave nothing behind."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = vsam.VSAM(torch.optim.SGD([weight], lr=1e-6, momentum=0.9), start=20, window=10)

    def closure() -> Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss

    def run(num_steps: int) -> int:
        for _ in range(num_steps):
            optimizer.step(closure)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        run(500)
        sizes = [run(2000) for _ in range(4)]
    finally:
        tracemalloc.stop()
    # The least growth: threads that other tests have left may allocate something once.
    assert min(after - before for before, after in pairwise(sizes)) < 20_000
