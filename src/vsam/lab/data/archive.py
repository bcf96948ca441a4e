"""Find a dataset's folder, unpack it from its archive, or download that; nothing is left half done or misplaced."""

import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PureWindowsPath

from vsam.lab.data.download import download
from vsam.lab.data.sources import ArchiveSource, check_directory, checksum_of, lies_there
from vsam.lab.errors import DataError

__all__ = ["extract", "find", "obtain"]


def obtain(source: ArchiveSource, root: Path, *, allow_download: bool = True) -> Path:
    """The folder of `source` under `root`, with all files of the right size.

    An existing folder is used or rejected, and so is an existing archive; only if there is neither, the archive is
    downloaded. It is kept, so that a damaged folder can be restored offline.
    """
    folder, archive = _places(source, root)
    found = find(source, root)
    if found == folder:
        return folder
    if found is None:
        if not allow_download:
            advice = f"Put {source.archive} from {source.url} there, or allow the download."
            raise DataError(f"{source.title} is not in {root}. {advice}")
        download(source.url, archive, source.checksum)
    _unpack(source, archive, folder)
    source.check_sizes(folder)
    return folder


def find(source: ArchiveSource, root: Path) -> Path | None:
    """The folder of `source` under `root`, its sizes checked, else the archive, its checksum checked, else None."""
    folder, archive = _places(source, root)
    if lies_there(folder):
        source.check_sizes(folder)
        return folder
    if lies_there(archive):
        _check_archive(source, archive)
        return archive
    return None


def extract(archive: Path, target: Path) -> None:
    """Write the files of a `.tar.gz` below `target`; anything but plain files and folders is an error."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                destination = target / _safe_name(archive, member)
                content = tar.extractfile(member)
                if content is None:
                    destination.mkdir(parents=True, exist_ok=True)
                    continue
                destination.parent.mkdir(parents=True, exist_ok=True)
                with content, destination.open("xb") as file:
                    shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} could not be unpacked: {error}. Is the disk full, or the file damaged?") from error


def _safe_name(archive: Path, member: tarfile.TarInfo) -> str:
    # Windows rules cover both kinds of slashes and drives; what they accept is safe on every system.
    path = PureWindowsPath(member.name)
    if path.drive or path.root or ".." in path.parts:
        raise DataError(f"{archive} was rejected: {member.name!r} would be written outside its folder.")
    if not (member.isreg() or member.isdir()):
        raise DataError(f"{archive} was rejected: {member.name!r} is a link or a device, not a plain file.")
    return member.name


def _places(source: ArchiveSource, root: Path) -> tuple[Path, Path]:
    """Where the folder and the archive are or would be; `root` may also be the folder itself."""
    check_directory(root)
    folder, archive = root / source.folder, root / source.archive
    if lies_there(folder) or lies_there(archive):
        return folder, archive
    if root.absolute().name == source.folder:
        return root, root.absolute().parent / source.archive
    held = [file.name for file in source.files if (root / file.name).exists()]
    if len(held) == len(source.files):
        return root, archive
    if held:
        lacking = next(file.name for file in source.files if file.name not in held)
        advice = f"Complete it, or give the folder that contains {source.folder} or {source.archive} as --data-dir."
        raise DataError(f"{root} is an incomplete {source.title}: it has {held[0]} but not {lacking}. {advice}")
    return folder, archive


def _check_archive(source: ArchiveSource, archive: Path) -> None:
    found = checksum_of(archive, like=source.checksum)
    if found != source.checksum:
        wrong = f"its checksum is {found} instead of {source.checksum}"
        raise DataError(f"{archive} is damaged: {wrong}. Delete it and rerun to download it from {source.url}.")


def _unpack(source: ArchiveSource, archive: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        extract(archive, Path(temporary))
        unpacked = Path(temporary) / folder.name
        source.check_sizes(unpacked)
        try:
            os.rename(unpacked, folder)
        except OSError:
            # Another process may have been faster; obtain() checks its result.
            if not folder.exists():
                raise
