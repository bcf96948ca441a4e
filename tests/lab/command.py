"""The command in real processes, forked from a server that has the seconds of imports behind it."""

import itertools
import multiprocessing
import os
import resource
import signal
import sys
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from lab.helpers import QUICK_CHANGES

QUICK = ("--tiny", *(part for change in QUICK_CHANGES for part in ("--set", change)))

_numbers = itertools.count()
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["torch._dynamo", "vsam.lab.cli.app", "vsam.lab.report.figures"])


@dataclass
class Command:
    """A running `vsam`, its streams in files, in a folder of its own.

    Args:
        arguments: of the command.
        folder: the working directory.
        environment: added to this process's.
        die_before: be killed before this many-th file below `folder` is opened or renamed, counted from 1.
        file_size: bytes that a file may have at most, so that the disk seems full.
        terminal: path of a terminal for both streams.
    """

    arguments: tuple[str, ...]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    die_before: int | None = None
    file_size: int | None = None
    terminal: str | None = None

    def start(self) -> "Command":
        name = f"{self.folder.name}-{next(_numbers)}"
        self.streams = [self.folder.parent / f"{name}.{kind}" for kind in ("out", "err")]
        for stream in self.streams:
            stream.touch()
        process = _server.Process(target=_run, args=(self,), daemon=True)
        process.start()
        self.process: BaseProcess = process
        return self

    def wait(self, seconds: float = 600) -> "Command":
        self.process.join(seconds)
        if self.process.is_alive():
            self.kill()
            raise TimeoutError(f"vsam {' '.join(self.arguments)} ran for over {seconds} s: {self.stderr}")
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def interrupt(self) -> "Command":
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGINT)
        return self

    @property
    def is_running(self) -> bool:
        return self.process.is_alive()

    @property
    def code(self) -> int | None:
        return self.process.exitcode

    @property
    def stdout(self) -> str:
        return self.streams[0].read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self.streams[1].read_text(encoding="utf-8")


def vsam(*arguments: str, folder: Path, **options: object) -> Command:
    """Run the command to its end."""
    return Command(arguments, folder, **options).start().wait()  # type: ignore[arg-type]


def assert_refused(command: Command, code: int, *parts: str) -> None:
    """The command failed with `code` and one plain message that holds all `parts`."""
    assert command.code == code, command.stdout + command.stderr
    assert "Traceback" not in command.stderr
    for part in parts:
        assert part in command.stderr


def _run(command: Command) -> None:
    os.chdir(command.folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
    os.environ |= {"OMP_NUM_THREADS": "1", **command.environment}
    streams = [command.terminal, command.terminal] if command.terminal else command.streams
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_RDWR), number)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.argv = ["vsam", *command.arguments]
    if command.file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (command.file_size, command.file_size))
    if command.die_before is not None:
        _die_before(command.die_before, str(command.folder))
    import torch

    from vsam.lab.cli import main

    torch.set_num_threads(1)
    main()


def _die_before(count: int, folder: str) -> None:
    """Python tells an audit hook of every file it is about to touch: kill this process at one of them."""
    left = count

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in ("open", "os.rename") and os.path.abspath(str(arguments[0])).startswith(folder):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
