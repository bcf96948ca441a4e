"""Every program of research/ runs at its smallest, as a command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"frontier": ["frontier"], "trials": ["frontier", "trials"], "flatness": ["flatness"], "lemma2": ["lemma2"]}


@pytest.mark.slow
@pytest.mark.parametrize("study", PROGRAMS)
def test_a_program_writes_its_study(study: str, tmp_path: Path) -> None:
    module, *more = PROGRAMS[study]
    command = [sys.executable, "-m", f"research.{module}", *more, "--scale", "tiny", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / f"{study}.json").read_text(encoding="utf-8"))
    assert (content["study"], content["scale"]) == (study, "tiny")
    assert content["rows"]
    assert f"{study}.md" in done.stdout
