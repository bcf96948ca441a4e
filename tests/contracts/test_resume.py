"""Save at any step, load into fresh objects, go on: the same run to the bit."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from contract_table import BASES, LENGTH, Run, assert_same, every_case, every_method, generators, set_generators

# In the start phase, and inside the windows behind it.
STEPS = [11, 17]


def _save(run: Run) -> bytes:
    file = io.BytesIO()
    entries = {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "generators": generators()}
    torch.save(entries, file)
    return file.getvalue()


def _load(run: Run, saved: bytes) -> Run:
    entries: dict[str, Any] = torch.load(io.BytesIO(saved), weights_only=True)
    run.model.load_state_dict(entries["model"])
    run.optimizer.load_state_dict(entries["optimizer"])
    set_generators(entries["generators"])
    return run


def _check(method: str, base: str, steps: list[int]) -> None:
    straight, saved = Run(method, base), {}
    for number in range(LENGTH):
        if number in steps:
            saved[number] = _save(straight)
        straight.step(number)
    expected = straight.everything()
    for number, entries in saved.items():
        resumed = _load(Run(method, base), entries).go(first=number)
        assert_same(resumed.everything(), expected)
        assert resumed.samples == straight.samples[number:]


@every_case
def test_from_several_steps(method: str, base: str) -> None:
    _check(method, base, STEPS)


@pytest.mark.parametrize("method", ["vsam", "looksam-5", "esam"])
def test_from_every_step(method: str) -> None:
    _check(method, "momentum", list(range(LENGTH)))


@every_method
@pytest.mark.parametrize("fused", [torch.optim.SGD, torch.optim.AdamW])
def test_with_a_fused_base(method: str, fused: Any) -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        return fused(parameters, lr=0.01, fused=True)

    straight = Run(method, make).go(last=14)
    saved = _save(straight)
    expected = straight.go(first=14).everything()
    assert_same(_load(Run(method, make), saved).go(first=14).everything(), expected)


@every_method
def test_saving_changes_nothing(method: str) -> None:
    straight, watched = Run(method, "momentum").go(), Run(method, "momentum")
    for number in range(LENGTH):
        watched.optimizer.state_dict()
        watched.step(number)
    assert_same(watched.everything(), straight.everything())


@every_method
def test_a_saved_state_does_not_follow_the_run(method: str) -> None:
    run = Run(method).go(last=13)
    state = run.optimizer.state_dict()["sharpness"]
    kept = _save(run)
    run.go(first=13)
    assert_same(state, torch.load(io.BytesIO(kept), weights_only=True)["optimizer"]["sharpness"])


@every_method
def test_loading_over_a_run_under_way_leaves_nothing_of_it(method: str) -> None:
    straight = Run(method, "adamw").go(last=13)
    saved = _save(straight)
    straight.go(first=13)
    assert_same(_load(Run(method, "adamw").go(last=19), saved).go(first=13).everything(), straight.everything())


_PROGRAM = """
import sys
import test_resume
from contract_table import Run
folder, *cases = sys.argv[1:]
for case in cases:
    run = test_resume._load(Run(*case.split()), open(f"{folder}/{case}.before", "rb").read()).go(first=15)
    open(f"{folder}/{case}.after", "wb").write(test_resume._save(run))
"""


def test_in_a_new_process(tmp_path: Path) -> None:
    cases: dict[str, Any] = {"vsam momentum": None, "esam adamw": None}
    for case in cases:
        run = Run(*case.split()).go(last=15)
        (tmp_path / f"{case}.before").write_bytes(_save(run))
        cases[case] = torch.load(io.BytesIO(_save(run.go(first=15))), weights_only=True)
    here = Path(__file__).parent
    program = f"import sys; sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]\n{_PROGRAM}"
    subprocess.run([sys.executable, "-c", program, str(tmp_path), *cases], check=True)
    for case, expected in cases.items():
        assert_same(torch.load(tmp_path / f"{case}.after", weights_only=True), expected)


def test_the_state_is_the_bases_and_one_entry() -> None:
    run = Run("vsam", "momentum").go(last=4)
    assert_same(
        {name: value for name, value in run.optimizer.state_dict().items() if name != "sharpness"},
        run.optimizer.base.state_dict(),
    )
    assert set(run.optimizer.state_dict()) == {"state", "param_groups", "sharpness"}


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    run = Run("vsam", "momentum").go(last=4)
    before = run.everything()
    others = [Run("sam", "momentum").go(last=2), Run("vsam-released", "momentum").go(last=2)]
    states = [other.optimizer.state_dict() for other in others]
    states += [{"param_groups": [], "state": {}, "sharpness": before["optimizer"]["sharpness"]}]
    states += [BASES["momentum"](run.model.parameters()).state_dict()]
    for state in states:
        with pytest.raises(ValueError, match=r"state_?.?dict"):
            run.optimizer.load_state_dict(state)
        after = run.everything()
        assert_same(after["optimizer"], before["optimizer"])


def test_state_dict_hooks_run() -> None:
    """Hooks are torch's: a saver that registers one must not be passed over in silence."""
    run, calls = Run("sam"), []
    run.optimizer.register_state_dict_pre_hook(lambda optimizer: calls.append("before saving"))
    run.optimizer.register_state_dict_post_hook(lambda optimizer, state: calls.append("after saving"))
    run.optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: calls.append("before loading"))
    run.optimizer.register_load_state_dict_post_hook(lambda optimizer: calls.append("after loading"))
    run.optimizer.load_state_dict(run.optimizer.state_dict())
    assert calls == ["before saving", "after saving", "before loading", "after loading"]
