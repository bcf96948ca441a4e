"""The benchmark of a step at its smallest: nothing is asserted about times."""

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import step_cost
from benchmarks.counts import count_calls, count_steps, typical
from benchmarks.step_cost import BASES, METHODS, WORKLOADS, Base, Stopwatch, Turn, Workload

TINY = Workload(
    "tiny",
    lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 10)),
    lambda: torch.randn(6, 4),
    burst=2,
)
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKLOADS, "tiny", TINY)


def options(*arguments: str) -> argparse.Namespace:
    return step_cost.parse(["--workloads", "tiny", "--rounds", "2", "--no-memory", *arguments])


def loop(name: str, base: Base = BASES["sgd"]) -> Any:
    return next(one for one in METHODS if one.name == name).make(TINY.build(), base)


def test_times_and_counts_and_their_page() -> None:
    found = dict(step_cost.measure(options("--base", "sgd", "--methods", "sgd,sam,vsam")))
    kinds = [("sgd", "plain"), ("sam", "sampled"), ("vsam", "sampled"), ("vsam", "plain")]
    assert [(row["method"], row["kind"]) for row in found["times"]] == kinds
    assert [(row["method"], row["kind"]) for row in found["counts"]] == kinds
    added = {(row["method"], row["kind"]): row["added"] for row in found["counts"]}
    assert added["sgd", "plain"]["operators"] == 0
    assert added["sam", "sampled"]["passes"] == 0
    assert added["sam", "sampled"]["operators"] > 0
    page = step_cost.page({**found, "memory": []}, "command", {})
    assert page.count("\n| tiny | sgd | vsam | plain |") == 2


@pytest.mark.parametrize("base", BASES)
def test_every_method_runs_around_every_base(base: str) -> None:
    ours = [method for method in METHODS if not method.is_peer]
    for method, turns in zip(ours, step_cost.time_rounds(TINY, BASES[base], ours, 2, 60), strict=True):
        assert len(turns) >= 2, method
        assert all(min(turn.step, turn.base_pass, turn.base_step) > 0 for turn in turns)
        assert method.keeps is None or {turn.sampled for turn in turns} == {method.keeps}


def test_peers_take_two_passes() -> None:
    pytest.importorskip("pytorch_optimizer")
    for method in METHODS:
        if method.is_peer:
            own = method.make(TINY.build(), BASES["sgd"])
            assert [count_calls(own.step)["backward pass"] for _ in range(2)] == [2, 2]


def test_the_peers_sam_is_ours() -> None:
    pytest.importorskip("pytorch_optimizer")
    fast = Base("fast", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
    loops = [loop(name, fast) for name in ("sam", "peer-sam", "peer-sam-foreach")]
    for own in loops:
        for _ in range(3):
            own.step()
    ours, *theirs = ([*own.problem.model.parameters()] for own in loops)
    assert not torch.equal(ours[0], next(TINY.build().model.parameters()))
    for peer in theirs:
        torch.testing.assert_close(peer, ours)


def test_both_kinds_of_steps_are_counted() -> None:
    counts = count_steps(lambda: loop("sam-5"), 10)
    assert [one.passes for one in counts] == [1 + one.sampled for one in counts]
    assert sum(one.sampled for one in counts) == 2
    assert typical(counts, sampled=True) != typical(counts, sampled=False)


def test_passes_and_the_base_are_timed_within_the_step() -> None:
    watch = Stopwatch(loop("sam"))
    whole, outside = watch.time(watch.loop.step)
    assert watch.num_passes == 2
    assert outside is not None
    assert 0 < outside < whole
    assert watch.time(lambda: None)[1] is None


def test_what_a_turn_adds() -> None:
    turn = Turn(True, step=8.0, outside=None, base_pass=3.0, base_step=1.0, clearing=0.5)
    assert turn.to_base == 2.0
    assert turn.added(2) == 0.25
    assert Turn(True, 8.0, 2.0, 3.0, 1.0, 0.5).added(2) == 0.25


def test_threads_and_collector_are_restored() -> None:
    before = torch.get_num_threads()
    with step_cost.single_thread():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert torch.get_num_threads() == before


def test_unknown_names_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--methods", "smm")
    assert "smm" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_sam_takes_one_copy_of_the_weights() -> None:
    (row,) = step_cost.memory_rows([one for one in METHODS if one.name == "sam"], "sgd", (3072, 3072, 3))
    assert row["kept"] == pytest.approx(0, abs=0.1)
    assert row["extra"] == pytest.approx(1, abs=0.1)
    with pytest.raises(RuntimeError, match="nothing"):
        step_cost.measure_memory("nothing", "sgd", (2, 2, 1))


@pytest.mark.slow
def test_the_program_writes_its_results(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.step_cost", "--workloads", "mlp", "--base", "sgd", "--methods", "sgd"]
    subprocess.run([*command, "--rounds", "2", "--no-memory", "--out", str(tmp_path)], cwd=ROOT, check=True)
    content = json.loads((tmp_path / "step_cost.json").read_text(encoding="utf-8"))
    assert content["times"][0]["workload"] == "mlp"
    assert {"command", "environment", "counts", "memory"} <= content.keys()
    assert (tmp_path / "step_cost.md").read_text(encoding="utf-8").startswith("# What a step costs")
