"""Joining the other processes that `torchrun` has started, and leaving them."""

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

from vsam.lab.errors import LostRankError, RunError, UserError
from vsam.lab.ranks.ranks import ALONE, Ranks
from vsam.lab.runs.environment import choose_device
from vsam.lab.torchrun import num_started

__all__ = ["choose_rank_device", "join"]

_TIMEOUT = timedelta(minutes=10)


def choose_rank_device(name: str | None) -> torch.device:
    """The device called `name`, or the best one; of several processes on a machine, each gets a GPU of its own."""
    if num_started() == 1:
        return choose_device(name)
    device = choose_device(name)
    if device.type == "cuda":
        if name not in (None, "cuda"):
            raise UserError(f"--device {name} is one GPU for all processes. Leave it out: each takes its own.")
        local, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= count:
            raise UserError(
                f"This machine has {count} GPUs and more processes. Start torchrun with --nproc-per-node {count}, or "
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
    """The processes that torchrun has started with this one, or this one alone.

    Within the block a run must be closed again: a process whose DDP module outlives the group may never end.
    SIGTERM and Ctrl-C, which torchrun passes on to all of them, set `stop_wanted`. A process that ends, or answers
    nobody for ten minutes, ends the others with a `LostRankError`.
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
    distributed.destroy_process_group()  # only if all went well: it may wait for the others


@contextmanager
def _lost() -> Iterator[None]:
    """Say in our words that a process is gone; gloo has no type of its own for that."""
    try:
        yield
    except RunError:
        raise
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
            raise
        raise LostRankError(
            f"Process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} waited in vain for another one, which has "
            "ended or does not answer: torchrun says below which one failed first. Rerun the same command to resume "
            f"from the last checkpoint. ({str(error).splitlines()[0]})"
        ) from error


@contextmanager
def _noting_signals(ranks: Ranks) -> Iterator[None]:
    """Note SIGTERM and Ctrl-C instead of falling out of a step that the others are still in."""
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
