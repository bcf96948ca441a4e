"""Lightning on two processes: the ranks agree to the bit, and with one process to rounding."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lightning_net as nets

SCRIPT = Path(__file__).with_name("lightning_two_processes.py")

pytestmark = nets.PACKAGE_WARNINGS


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    script: dict[str, object] = {"__name__": "script"}
    exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), script)
    for name in ("automatic", "manual"):
        one = script["train"](name, 1)  # type: ignore[operator]
        for rank in (first[name], second[name]):
            assert all(map(torch.equal, rank["weights"], first[name]["weights"]))
            for weight, expected in zip(rank["weights"], one["weights"], strict=True):
                torch.testing.assert_close(weight, expected)
            assert rank["num_samples"] == one["num_samples"]
            assert 0 < rank["num_samples"] < rank["steps"] == one["steps"] == (4 if name == "automatic" else 8)
            assert rank["num_seen"] == 32
            assert rank["loss"] == pytest.approx(one["loss"], rel=1e-5)
        assert one["num_seen"] == 64
    for is_second in (False, True):  # of the two micro-batches of a pass, the last one synchronises
        syncs = [syncs for kind, syncs in first["automatic"]["synchronised"] if kind is is_second]
        assert syncs == [False, True] * (len(syncs) // 2)
        assert syncs
    for weight, expected in zip(first["sharded"]["weights"], first["automatic"]["weights"], strict=True):
        torch.testing.assert_close(weight, expected)
    assert first["sharded"]["num_samples"] == first["automatic"]["num_samples"]
    assert first["sharded"]["num_seen"] == 32
    assert all(map(torch.equal, first["rank"]["weights"], second["rank"]["weights"]))
    assert not any(map(torch.equal, first["rank"]["weights"], first["automatic"]["weights"]))
    assert first["rank"]["num_samples"] == second["rank"]["num_samples"] > 0
