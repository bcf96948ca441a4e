"""Download a file completely or not at all: resumable, checked, atomic."""

import http.client
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from vsam.lab.data.sources import checksum_of
from vsam.lab.errors import DataError

__all__ = ["download"]

_CHUNK = 1 << 18
_TRIES_WITHOUT_PROGRESS = 3


def download(url: str, target: Path, checksum: str, *, timeout: float = 30.0) -> None:
    """Download `url` to `target`, which must have `checksum`. What `target.part` contains is not fetched again.

    A broken connection is resumed, until three attempts in a row make no progress. While another process downloads the
    same file, this one waits and uses its result.

    Raises:
        DataError: the server cannot be reached or refuses, or the content is not what was published.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with FileLock(target.with_name(f".{target.name}.lock")):  # the system releases the lock of a killed process
        if target.exists() and checksum_of(target, like=checksum) == checksum:
            return
        print(f"Downloading {url}", file=sys.stderr, flush=True)
        _fetch_patiently(url, part, timeout)
        found = checksum_of(part, like=checksum)
        if found != checksum:
            part.unlink()
            wrong = f"its checksum is {found} instead of {checksum}"
            raise DataError(f"{url} did not deliver the published file: {wrong}. It was deleted; try again later.")
        os.replace(part, target)


def _fetch_patiently(url: str, part: Path, timeout: float) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        bar.add_task(part.stem)
        tries = 0
        while True:
            held = _size(part)
            try:
                return _fetch(url, part, timeout, bar)
            except (OSError, http.client.HTTPException) as error:
                tries = tries + 1 if _size(part) <= held else 0
                refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
                if refused or tries >= _TRIES_WITHOUT_PROGRESS:
                    advice = f"Try again (the download resumes), or put the file into {part.parent} yourself."
                    raise DataError(f"{url} could not be downloaded: {error}. {advice}") from error


def _fetch(url: str, part: Path, timeout: float, bar: Progress) -> None:
    """Request what `part` lacks and append it. OSError if the connection ends early."""
    held = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={held}-"} if held else {})
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
        part.unlink()
        raise ConnectionError("the partial file was as long as the published one, or longer") from error
    with response:
        start, said = 0, response.headers.get("Content-Range", "")  # servers may ignore the requested range
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            start = held
            if not said.startswith(f"bytes {held}-"):
                raise ConnectionError(f"the server sent {said!r} when asked for bytes from {held}")
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.open("ab") as file:
            file.truncate(start)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                start += len(chunk)
                bar.update(bar.task_ids[0], completed=start, total=total)
    if total is not None and start < total:
        raise ConnectionError(f"the connection ended after {start:,} of {total:,} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
