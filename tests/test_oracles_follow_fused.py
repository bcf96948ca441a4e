"""A fused base, which skips a bad step by itself, ends where one that is asked first ends."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import oracles
import vsam
from oracles import flat, flat_batches, flat_gradient, smooth_network
from vsam._step import foreach

RULE: dict[str, Any] = {"rho": 0.1, "gamma": 0.8, "alpha": 0.4, "window": 20, "slices": 5, "watch": 2, "seed": 3}


@pytest.fixture(autouse=True)
def _on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch numbers only when they are needed. On the host every base would be asked first."""
    monkeypatch.setattr(foreach, "HOST", "nowhere")


Told = list[tuple[bool, bool, int | None, float | None]]


def make(method: str, base: torch.optim.Optimizer, model: torch.nn.Module) -> vsam.SharpnessAware:
    if method == "sam":
        return vsam.SAM(base, model=model, rho=0.1)
    if method == "looksam":
        return vsam.LookSAM(base, model=model, rho=0.1, every=5, scale=0.7)
    if method == "stopping":
        parts = {"when": vsam.Every(5), "where": vsam.GlobalNorm(0.1), "between": vsam.Decayed(0.8, 0.8**6)}
        return vsam.SharpnessAware(base, model=model, **parts)  # type: ignore[arg-type]
    return vsam.VSAM(base, model=model, start=47, variant=method, **RULE)  # type: ignore[arg-type]


def run(method: str, is_fused: bool, bad: dict[int, int], steps: int = 150) -> tuple[Tensor, Told]:
    """The final weights, and of each step whether it was sampled and skipped, its age and s.

    `bad` says in which pass of which steps a gradient is not finite.
    """
    model = smooth_network(seed=1)
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=is_fused)
    optimizer, told = make(method, base, model), []
    for step, (inputs, labels) in enumerate(flat_batches(seed=5, count=steps), start=1):
        passes = iter((1, 2))

        def closure(step: int = step, passes: Any = passes, inputs: Tensor = inputs, labels: Tensor = labels) -> Tensor:
            loss = cross_entropy(model(inputs), labels)
            loss.backward()
            if bad.get(step) == next(passes):
                model[0].weight.grad[0, 0] = torch.nan  # type: ignore[index, union-attr]
            return loss

        optimizer.step(closure)
        record = optimizer.last
        assert record is not None
        told.append((record.sampled, record.skipped, record.age, record.s))
    return flat(model), told


@pytest.mark.parametrize("method", ["sam", "looksam", "stopping", "paper", "released"])
def test_it_is_the_same_run(method: str) -> None:
    (weights, told), (expected, expected_told) = run(method, True, {}), run(method, False, {})
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)
    assert told == expected_told


@pytest.mark.filterwarnings("ignore:A gradient was not finite:RuntimeWarning")
@pytest.mark.parametrize("method", ["sam", "looksam", "stopping", "paper", "released"])
@pytest.mark.parametrize("bad", [{1: 2}, {6: 2}, {6: 1}, {11: 2, 16: 1, 21: 2, 26: 2, 31: 1, 36: 2}], ids=str)
def test_it_is_the_same_run_after_steps_that_were_skipped(method: str, bad: dict[int, int]) -> None:
    (weights, told), (expected, expected_told) = run(method, True, bad), run(method, False, bad)
    assert [(sampled, skipped, s) for sampled, skipped, _, s in told] == [(a, b, s) for a, b, _, s in expected_told]
    assert sum(skipped for _, skipped, _, _ in told) == len(bad)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:A gradient was not finite:RuntimeWarning")
@pytest.mark.parametrize("bad", [{1: 2}, {6: 2}, {6: 1}], ids=str)
def test_a_skipped_sample_leaves_the_age_of_the_one_before(bad: dict[int, int]) -> None:
    _, told = run("looksam", True, bad, steps=12)
    _, expected = run("looksam", False, bad, steps=12)
    assert [age for _, _, age, _ in told] == [age for _, _, age, _ in expected]


def test_the_fused_run_is_the_twins_too() -> None:
    model = smooth_network(seed=1)
    w, twin = flat(model), oracles.SAM(oracles.SGD(0.05, 0.9), 0.1)
    for inputs, labels in flat_batches(seed=5, count=150):
        w = twin.step(w, lambda at, x=inputs, y=labels: flat_gradient(at, x, y))
    torch.testing.assert_close(run("sam", True, {})[0], w, rtol=0, atol=1e-10)
