"""Joining and leaving the process group that `torchrun` started."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

import torch
from torch import distributed

from vsam.lab.environment import choose_device
from vsam.lab.errors import LostRankError, RunError, UserError
from vsam.lab.ranks.ranks import ALONE, Ranks
from vsam.lab.torchrun import num_started

__all__ = ["choose_rank_device", "join"]

_TIMEOUT = timedelta(minutes=10)


def choose_rank_device(name: str | None) -> torch.device:
    """The device called `name`, or the best one. With several processes per machine, each gets its own GPU."""
    if num_started() == 1:
        return choose_device(name)
    device = choose_device(name)
    if device.type == "cuda":
        if name not in (None, "cuda"):
            raise UserError(f"--device {name} is one GPU for all processes. Leave it out: each process uses its own.")
        local, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= count:
            raise UserError(
                f"This machine has {count} GPUs, but more processes. Start torchrun with --nproc-per-node {count}, or "
                "give --device cpu."
            )
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        return device
    if device.type != "cpu" and name is not None:
        raise UserError(f"Several processes train on GPUs or on the CPU, not on {name}. Give --device cpu.")
    return torch.device("cpu")


@contextmanager
def join(device: torch.device) -> Iterator[Ranks]:
    """Join the processes that torchrun started, if any.

    Runs must be closed within the block: a process whose DDP module outlives the group may hang.
    SIGTERM and Ctrl-C, which torchrun forwards to all of them, set `stop_wanted`. If a process ends, or does not
    respond for ten minutes, the others raise `LostRankError`.
    """
    if num_started() == 1:
        yield ALONE
        return
    with _lost():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
        ranks = Ranks(distributed.get_rank(), distributed.get_world_size())
        if not ranks.is_first:
            logging.getLogger("vsam").setLevel(logging.ERROR)
        with _noting_signals(ranks):
            yield ranks
        distributed.barrier()  # or gloo's threads may still hold tensors when Python ends, which aborts
    distributed.destroy_process_group()  # not after an error: it may wait for the others


@contextmanager
def _lost() -> Iterator[None]:
    """Turn the error about a lost process into `LostRankError`. Gloo has no error type for it."""
    try:
        yield
    except RunError:
        raise
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
            raise
        raise LostRankError(
            f"Process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} lost contact with another one, which has "
            "ended or does not respond: torchrun says below which one failed first. Rerun the same command to resume "
            f"from the last checkpoint. ({str(error).splitlines()[0]})"
        ) from error


@contextmanager
def _noting_signals(ranks: Ranks) -> Iterator[None]:
    """Record SIGTERM and Ctrl-C instead of leaving a step that the others are still in."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        ranks.stop_wanted = True

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
