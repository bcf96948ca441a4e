"""The command `vsam`."""

import io
import logging
import os
import sys
import warnings

__all__ = ["main"]


def main() -> None:
    """Run the command. Exit codes: 0 success, 1 a failure while running, 2 wrong input by the user."""
    if "_VSAM_COMPLETE" in os.environ:  # or typer wraps descriptions, and the shell takes each line for a completion
        os.environ["TERMINAL_WIDTH"] = "1000"
    try:
        from vsam.lab.cli.app import app
        from vsam.lab.cli.bash import answer_bash
        from vsam.lab.errors import DataError, LostRankError, RunError, UserError, is_out_of_memory
        from vsam.lab.interrupt import treat_sigterm_like_ctrl_c
        from vsam.lab.text import for_terminal
        from vsam.lab.torchrun import is_quiet
    except ModuleNotFoundError as error:
        from vsam.lab.errors import install_line

        print(f"The vsam command needs {error.name}. Install it with: {install_line('lab')}", file=sys.stderr)
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.filterwarnings("ignore", "A gradient was not finite", RuntimeWarning)  # counted in the metrics
    logging.getLogger("vsam").setLevel(logging.INFO)
    logging.getLogger("vsam").addHandler(_ToStandardError())
    treat_sigterm_like_ctrl_c()
    try:
        if os.environ.get("_VSAM_COMPLETE") == "complete_bash":
            answer_bash(lambda: app(prog_name="vsam"))
        app()
    except Exception as error:
        if not isinstance(error, UserError | DataError | RunError | OSError) and not is_out_of_memory(error):
            raise
        if isinstance(error, LostRankError) or not is_quiet():
            print(for_terminal(f"Error: {_in_words(error)}").plain, file=sys.stderr, flush=True)
        sys.exit(2 if isinstance(error, UserError | DataError) else 1)


def _in_words(error: Exception) -> str:
    """Return the error's message, for a system error with the file it concerns."""
    from vsam.lab.errors import is_out_of_memory

    if is_out_of_memory(error):
        return "Out of memory. Use a smaller batch size or model."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


class _ToStandardError(logging.Handler):
    """Looks the stream up for each message, because progress bars replace it while they are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message."""
        from vsam.lab.text import for_terminal

        print(for_terminal(self.format(record)).plain, file=sys.stderr)
