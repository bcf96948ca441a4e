"""Functions run in processes that have joined, forked from a server that has torch imported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from lab.command import _server
from vsam.lab.ranks import ALONE, Ranks


def on_ranks(size: int, function: Callable[..., Any], folder: Path, *arguments: object) -> list[Any]:
    """Call the function in each of so many processes with the ranks and the arguments, and return the results."""
    (folder / "meet").unlink(missing_ok=True)
    given = [(function, rank, size, folder, arguments) for rank in range(size)]
    processes = [_server.Process(target=_run, args=one) for one in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]


def _run(function: Callable[..., Any], rank: int, size: int, folder: Path, arguments: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    if size > 1:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    torch.save(function(Ranks(rank, size) if size > 1 else ALONE, *arguments), folder / f"{rank}.pt")
    if size > 1:
        distributed.barrier()  # or gloo's threads may still hold tensors when Python ends, which aborts
        distributed.destroy_process_group()
