"""Two processes that run the checks of a test file, one after the other, and say how each of them went."""

import datetime
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

__all__ = ["assert_checks_pass", "run_page"]

PAGE = Path(__file__).parents[1] / "docs" / "loops" / "distributed.md"

GENEROUS = datetime.timedelta(seconds=600)
"""Seconds that a process waits for another one before it fails: longer than any pause of a busy machine."""


def assert_checks_pass(path: str, folder: Path, size: int = 2) -> None:
    """Run all functions `check_…(rank, folder)` of a file on `size` processes, in their order, until one fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    command = [sys.executable, __file__, path, str(size), str(folder)]
    workers = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(size)]
    try:
        codes = [worker.wait(timeout=1800) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert codes == [0] * size
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    errors = [f"Rank {rank}, {name}: {text}" for rank, one in enumerate(found) for name, text in one.items() if text]
    assert not errors, "\n".join(errors)
    assert all(list(one) == checks_of(path) for one in found)


def run_page(language: str, section: str, names: dict[str, Any]) -> None:
    """Run the blocks of a section of the page on several processes. Diffs are applied first."""
    text = PAGE.read_text().split(f"\n## {section}")[1].split("\n## ")[0]
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        lines = block.splitlines()
        exec("\n".join([line[1:] for line in lines if line[:1] != "-"] if language == "diff" else lines), names)


def checks_of(path: str) -> list[str]:
    """The names of a file's checks, in their order."""
    lines = Path(path).read_text().splitlines()
    return [line.split("(")[0].removeprefix("def ") for line in lines if line.startswith("def check_")]


def _work(path: str, size: int, folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error", RuntimeWarning)
    meet = f"file://{folder}/meet"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=size, timeout=GENEROUS)
    spec = importlib.util.spec_from_file_location("checks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    said = {}
    for name in checks_of(path):
        try:
            getattr(module, name)(rank, folder)
            said[name] = ""
        except Exception:
            said[name] = traceback.format_exc()
            break  # the other processes may wait for this one: what follows would not mean anything
    (folder / f"{rank}.part").write_text(json.dumps(said))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    end = time.monotonic() + GENEROUS.total_seconds()
    while time.monotonic() < end and not all((folder / f"{other}.json").exists() for other in range(size)):
        time.sleep(0.05)
    os._exit(0)  # with a broken process group, an orderly end may take long or crash


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
