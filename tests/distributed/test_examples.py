"""The examples for several processes, started as a user does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _torchrun(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_ddp_with_each_ranks_own_perturbation() -> None:
    lines = sorted(line for line in _torchrun(str(EXAMPLES / "ddp.py"), "rank").splitlines() if line)
    assert [line.split(":")[0] for line in lines] == ["rank 0", "rank 1"]
    endings = [line.split("samples, ")[1] for line in lines]
    assert endings[0] == endings[1]  # the same weights
    first, last = (float(number) for number in re.findall(r"\d\.\d{3}", lines[0])[:2])
    assert last < 0.6 * first


@pytest.mark.slow
def test_fsdp2_resumes(tmp_path: Path) -> None:
    lines = [line for line in _torchrun(str(EXAMPLES / "fsdp2.py"), str(tmp_path)).splitlines() if line]
    assert len(lines) == 2
    assert all(line.endswith("the same after resuming: True") for line in lines)
