"""Read the variables that `torchrun` sets in its processes, without importing torch."""

import os

from vsam.lab.errors import UserError

__all__ = ["check_command", "is_quiet", "num_started"]

_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def num_started() -> int:
    """Return the number of processes that torchrun started, 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in _NEEDED) else 1


def is_quiet() -> bool:
    """Return True if another process on this machine prints the same output: one is enough."""
    return num_started() > 1 and os.environ["LOCAL_RANK"] != "0"


def check_command(name: str | None) -> None:
    """Reject commands that several processes would only repeat."""
    if num_started() > 1 and name != "train":
        raise UserError(
            f"torchrun is for vsam train: {num_started()} processes of vsam {name or ''} would repeat the same work. "
            "Run it without torchrun; compare and study take --ray ADDRESS for several runs at a time."
        )
