"""Two real processes with DDP train like one with the whole batch: the Trainer, and accelerate's loop."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = str(TESTS / "integrations" / "two_processes.py")


def run(folder: Path, *launcher: str) -> None:
    folder.mkdir()
    paths = [str(TESTS), str(TESTS.parent / "src")]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, PROGRAM, str(folder)]
    result = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3_000:]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("processes")
    run(folder / "one")
    run(folder / "two", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    files = {"one": "one/seen-0.pt", "first": "two/seen-0.pt", "second": "two/seen-1.pt"}
    return {name: torch.load(folder / file, weights_only=True) for name, file in files.items()}


@pytest.mark.slow
def test_two_processes_train_as_one(seen: dict[str, Any]) -> None:
    for select in (lambda run: run["trainer"]["whole"], lambda run: run["loop"]):
        one, first, second = (select(seen[name]) for name in ("one", "first", "second"))
        assert all(map(torch.equal, first["weights"], second["weights"]))
        torch.testing.assert_close(first["weights"], one["weights"], rtol=0, atol=1e-10)
        assert one["num_samples"] == first["num_samples"] == second["num_samples"]
    assert seen["first"]["loop"]["losses"] == pytest.approx(seen["one"]["loop"]["losses"], abs=1e-5)
    assert seen["first"]["trainer"]["whole"]["tokens"] == seen["one"]["trainer"]["whole"]["tokens"]


@pytest.mark.slow
def test_each_pass_synchronises_once(seen: dict[str, Any]) -> None:
    for noted in (seen["first"]["trainer"]["whole"]["synchronised"], seen["first"]["loop"]["synchronised"]):
        first = [is_synchronised for is_second, is_synchronised in noted if not is_second]
        second = [is_synchronised for is_second, is_synchronised in noted if is_second]
        assert first == [False, True] * (len(first) // 2)
        assert second == [False, True] * (len(second) // 2)
        assert len(second) > 2


@pytest.mark.slow
def test_each_process_may_perturb_along_its_own_gradient(seen: dict[str, Any]) -> None:
    first, second = seen["first"]["apart"], seen["second"]["apart"]
    assert all(map(torch.equal, first["weights"], second["weights"]))
    plain, sampled = [(False, False), (False, True)], [(False, False), (False, False), (True, False), (True, True)]
    assert first["synchronised"] == sampled + plain


@pytest.mark.slow
def test_sharded_weights_train_as_one(seen: dict[str, Any]) -> None:
    found, one = seen["first"]["sharded"], seen["one"]
    torch.testing.assert_close(found["trainer"], one["trainer"]["whole"]["weights"], rtol=0, atol=1e-10)
    torch.testing.assert_close(found["loop"], one["loop"]["weights"], rtol=0, atol=1e-10)
    assert "save_only_model=True" in found["said"]


@pytest.mark.slow
def test_processes_that_do_not_agree_say_so(seen: dict[str, Any]) -> None:
    for run in (seen["first"], seen["second"]):
        assert ["The ranks do not agree on" in said for said in run["disagreement"]] == [True, True]


@pytest.mark.slow
def test_two_processes_resume_to_the_bit(seen: dict[str, Any]) -> None:
    whole, resumed = seen["first"]["trainer"]["whole"], seen["first"]["trainer"]["resumed"]
    assert all(map(torch.equal, whole["weights"], resumed["weights"]))
    assert whole["num_samples"] == resumed["num_samples"]
    assert len(resumed["synchronised"]) < len(whole["synchronised"])


@pytest.mark.slow
def test_micro_batches_that_are_not_repeated_are_noticed(seen: dict[str, Any]) -> None:
    """40 sentences are 5 batches on both layouts, so 3 steps of an epoch."""
    for run in seen.values():
        fine, one, other = run["unrepeated"]["said"]
        assert fine == "3 of 9"
        assert "2 backward passes and the second one 1" in one
        assert "other micro-batches than the first" in other
