"""Entry point of the command `vsam`."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command with threads that sleep while they wait.

    Threads that spin make training many times slower as soon as anything else runs on the machine (13 times on two
    cores). OpenMP reads the setting when torch is loaded; a user's own setting wins.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from vsam.lab.cli import main as run

        run()
    except KeyboardInterrupt:  # during imports; later the command itself reports it in more detail
        print("Interrupted.", file=sys.stderr)
        sys.exit(1)
