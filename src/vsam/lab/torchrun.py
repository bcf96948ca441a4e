"""What `torchrun` says of the processes that it has started; read without importing torch."""

import os

from vsam.lab.errors import UserError

__all__ = ["check_command", "is_quiet", "num_started"]

_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def num_started() -> int:
    """How many processes torchrun has started; 1 where it has not been used."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in _NEEDED) else 1


def is_quiet() -> bool:
    """Whether another process on this machine says the same: one of them is enough."""
    return num_started() > 1 and os.environ["LOCAL_RANK"] != "0"


def check_command(name: str | None) -> None:
    """Refuse commands that several processes would only run several times."""
    if num_started() > 1 and name != "train":
        raise UserError(
            f"torchrun is for vsam train: {num_started()} processes of vsam {name or ''} would do the same work. Start "
            "it without torchrun; compare and study give each run several processes by --ray --workers N."
        )
