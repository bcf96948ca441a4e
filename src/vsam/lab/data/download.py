"""Download a file completely or not at all: resumable, checked, atomic."""

import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from vsam.lab.data.sources import checksum_of
from vsam.lab.errors import DataError

__all__ = ["download"]

_CHUNK = 1 << 18
_TRIES_WITHOUT_PROGRESS = 3

Report = Callable[[int, int | None], None]


def download(url: str, target: Path, checksum: str, *, timeout: float = 30.0) -> None:
    """Download `url` to `target`, which must have `checksum`; what `target.part` contains is not fetched again.

    A broken connection is resumed, until three attempts in a row make no progress. Progress is shown on stderr: a
    bar on a terminal, a line per tenth elsewhere. While another process downloads the same file, this one waits and
    uses its result.

    Raises:
        DataError: the server cannot be reached or refuses, or the content is not what was published.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with _alone(target):
        if target.exists() and checksum_of(target, like=checksum) == checksum:
            return
        with _progress(target.name) as report:
            _fetch_patiently(url, part, timeout, report)
        found = checksum_of(part, like=checksum)
        if found != checksum:
            part.unlink()
            wrong = f"its checksum is {found} instead of {checksum}"
            raise DataError(f"{url} did not deliver the published file: {wrong}. It was deleted; try again later.")
        os.replace(part, target)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Keep other processes away from the partial file; the system releases the lock of a killed process."""
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"{target.name}: waiting for another process that is downloading it.", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        yield
        # Only now that the target exists: a process that waited on the removed lock finds it, and fetches nothing.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
    finally:
        lock.release()


def _fetch_patiently(url: str, part: Path, timeout: float, report: Report) -> None:
    most, tries = _size(part), 0
    while True:
        try:
            return _fetch(url, part, timeout, report)
        except (OSError, http.client.HTTPException) as error:
            tries = tries + 1 if _size(part) <= most else 0
            most = max(most, _size(part))
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or tries >= _TRIES_WITHOUT_PROGRESS:
                advice = f"Try again (the download resumes), or put the file into {part.parent} yourself."
                raise DataError(f"{url} could not be downloaded: {error}. {advice}") from error


def _fetch(url: str, part: Path, timeout: float, report: Report) -> None:
    """Request what `part` lacks and append it; OSError if the connection ends early."""
    held = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={held}-"} if held else {})
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            if error.headers.get("Content-Range", "") == f"bytes */{held}":
                return
        part.unlink()
        raise ConnectionError("the partial file is longer than the published one") from error
    with response:
        start = _start(response, held)
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.open("ab") as file:
            file.truncate(start)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                start += len(chunk)
                report(start, total)
    if total is not None and start < total:
        raise ConnectionError(f"the connection ended after {start:,} of {total:,} bytes")


def _start(response: http.client.HTTPResponse, held: int) -> int:
    """The position of the response's first byte: servers may ignore the requested range."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    content_range = response.headers.get("Content-Range", "")
    if not content_range.startswith(f"bytes {held}-"):
        raise ConnectionError(f"the server sent {content_range!r} when asked for bytes from {held}")
    return held


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _progress(title: str) -> Iterator[Report]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(title)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str, console: Console) -> Report:
    said = -1

    def report(done: int, total: int | None) -> None:
        nonlocal said
        tenth = 10 * done // total if total else done // 10_000_000
        if tenth == said:
            return
        said = tenth
        of = f" of {total / 1e6:,.1f}" if total else ""
        console.print(f"{title}: {done / 1e6:,.1f}{of} MB", highlight=False, soft_wrap=True)

    return report
