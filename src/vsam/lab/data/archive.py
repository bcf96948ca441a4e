"""Find a dataset's folder, unpack it from its archive, or download that. Nothing is left half done."""

import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path

from vsam.lab.data.download import download
from vsam.lab.data.sources import ArchiveSource, check_directory, checksum_of, exists
from vsam.lab.errors import DataError

__all__ = ["find", "obtain"]


def obtain(source: ArchiveSource, root: Path, *, allow_download: bool = True) -> Path:
    """Return the folder of `source` under `root`, with all files of the right size.

    An existing folder is used or rejected, and so is an existing archive. Only if there is neither, the archive is
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
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        unpacked = Path(temporary) / folder.name
        unpacked.mkdir()
        _extract(source, archive, unpacked)
        source.check_sizes(unpacked)
        if not folder.exists():  # another process may have been faster
            os.rename(unpacked, folder)
    source.check_sizes(folder)
    return folder


def find(source: ArchiveSource, root: Path) -> Path | None:
    """Return the folder of `source` under `root`, its sizes checked, else the archive, its checksum checked."""
    folder, archive = _places(source, root)
    if exists(folder):
        source.check_sizes(folder)
        return folder
    if not exists(archive):
        return None
    found = checksum_of(archive, like=source.checksum)
    if found != source.checksum:
        wrong = f"its checksum is {found} instead of {source.checksum}"
        raise DataError(f"{archive} is damaged: {wrong}. Delete it and rerun to download it from {source.url}.")
    return archive


def _extract(source: ArchiveSource, archive: Path, target: Path) -> None:
    """Write the known files of a `.tar.gz` to `target`. No name in the archive decides where."""
    wanted = {f"{source.folder}/{file.name}": target / file.name for file in source.files}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() and member.name in wanted else None
                if content is not None:
                    with content, wanted[member.name].open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} could not be unpacked: {error}. Is the disk full, or the file damaged?") from error


def _places(source: ArchiveSource, root: Path) -> tuple[Path, Path]:
    """Return where the folder and the archive are or would be. `root` may also be the folder itself."""
    check_directory(root)
    is_folder = root.absolute().name == source.folder or all((root / file.name).exists() for file in source.files)
    if is_folder and not (root / source.folder).exists():
        return root, root.absolute().parent / source.archive
    return root / source.folder, root / source.archive
