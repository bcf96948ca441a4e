import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from lab.data.server import Behaviour, serve
from vsam.lab.data import DataError
from vsam.lab.data.archive import obtain
from vsam.lab.data.cifar import load_cifar


@pytest.fixture
def root(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def origin(tmp_path):
    return tmp_path / "origin" / "tiny.tar.gz"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_archive_that_lies_there_is_unpacked_and_kept(make_cifar, root, origin):
    cifar, contents = make_cifar()
    (root / "tiny.tar.gz").write_bytes(origin.read_bytes())
    folder = obtain(cifar.source, root, allow_download=False)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents
    assert names(root) == ["tiny-bin", "tiny.tar.gz"]


def test_what_is_nowhere_is_downloaded_once(make_cifar, root, origin):
    # The archive is made at a fixed address first, since its checksum does not depend on it.
    cifar, contents = make_cifar()
    with serve(Behaviour(origin.read_bytes())) as server:
        source = type(cifar.source)(**{**vars(cifar.source), "url": server.url})
        for _ in range(2):
            folder = obtain(source, root / "deep" / "er")
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents
        assert len(server.requests) == 1


def test_without_leave_to_download_the_error_says_how_to_get_it(make_cifar, root):
    cifar, _ = make_cifar()
    with pytest.raises(DataError, match=r"Tiny is not in .*data\. Put tiny.tar.gz from http://127.0.0.1:9/"):
        obtain(cifar.source, root, allow_download=False)


@pytest.mark.parametrize("damage", ["missing", "short", "long", "changed", "empty folder"])
def test_a_damaged_folder_is_named_and_never_replaced(make_cifar, root, origin, damage):
    cifar, contents = make_cifar()
    (root / "tiny.tar.gz").write_bytes(origin.read_bytes())
    path = obtain(cifar.source, root) / "second.bin"
    content = contents["second.bin"]
    path.write_bytes({"short": content[:-1], "long": content + b"x"}.get(damage, b"\xff" + content[1:]))
    if damage == "missing":
        path.unlink()
    if damage == "empty folder":
        for file in path.parent.iterdir():
            file.unlink()
    name = "first.bin" if damage == "empty folder" else "second.bin"
    left = names(path.parent)
    with pytest.raises(DataError, match=f"{name}.*Delete {path.parent} and rerun"):
        # Sizes are looked at before anything is read, contents while reading.
        load_cifar(cifar, root) if damage == "changed" else obtain(cifar.source, root)
    assert names(path.parent) == left


def test_a_damaged_archive_is_named_and_never_replaced(make_cifar, root, origin):
    cifar, _ = make_cifar()
    (root / "tiny.tar.gz").write_bytes(origin.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"tiny.tar.gz is damaged: its checksum is .* Delete it and rerun"):
        obtain(cifar.source, root)
    assert names(root) == ["tiny.tar.gz"]


def test_an_archive_without_the_promised_files_leaves_no_folder(make_cifar, root, origin):
    cifar, _ = make_cifar()
    (root / "tiny.tar.gz").write_bytes(origin.read_bytes())
    more = (*cifar.source.files, cifar.source.files[0].__class__("third.bin", 1, "md5:0"))
    source = type(cifar.source)(**{**vars(cifar.source), "files": more})
    with pytest.raises(DataError, match=r"third.bin is missing"):
        obtain(source, root)
    assert names(root) == ["tiny.tar.gz"]


# The address of `make_cifar` answers nobody: whatever starts a download ends in "could not be downloaded".


@pytest.mark.parametrize("name", ["tiny-bin", "tiny.tar.gz"])
def test_a_link_that_leads_nowhere_is_named_and_starts_no_download(make_cifar, root, name):
    cifar, _ = make_cifar()
    (root / name).symlink_to(root / "unmounted" / "disk")
    with pytest.raises(DataError, match=rf"{root / name} is a link to .*unmounted/disk, which does not exist\. Fix"):
        obtain(cifar.source, root)
    assert names(root) == [name]


def test_a_data_directory_that_is_a_link_to_nowhere_is_named(make_cifar, tmp_path):
    cifar, _ = make_cifar()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"link is a link to .*nowhere, which does not exist"):
        obtain(cifar.source, tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


def test_a_whole_folder_behind_a_link_is_used(make_cifar, root, tmp_path):
    cifar, _ = make_cifar()
    (root / "tiny-bin").symlink_to(tmp_path / "origin" / "tiny-bin")
    assert obtain(cifar.source, root) == root / "tiny-bin"


@pytest.mark.parametrize("name", ["tiny-bin", "other"])
def test_the_folder_itself_is_taken_for_the_data_directory(make_cifar, tmp_path, monkeypatch, name):
    cifar, _ = make_cifar()
    folder = (tmp_path / "origin" / "tiny-bin").rename(tmp_path / name)
    assert obtain(cifar.source, folder) == folder
    monkeypatch.chdir(folder)
    assert (obtain(cifar.source, Path()) / "test.bin").exists()


def test_the_folder_itself_is_made_where_it_was_asked_for(make_cifar, root, origin):
    cifar, contents = make_cifar()
    (root / "tiny.tar.gz").write_bytes(origin.read_bytes())
    folder = obtain(cifar.source, root / "tiny-bin")
    assert folder == root / "tiny-bin"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


def test_a_damaged_folder_given_as_data_directory_is_named_and_starts_no_download(make_cifar, tmp_path):
    cifar, _ = make_cifar()
    folder = tmp_path / "origin" / "tiny-bin"
    (folder / "second.bin").unlink()
    with pytest.raises(DataError, match=r"tiny-bin is incomplete: second.bin is missing"):
        obtain(cifar.source, folder)
    folder = folder.rename(tmp_path / "mine")
    with pytest.raises(DataError, match=r"could not be downloaded|is not in"):
        obtain(cifar.source, folder, allow_download=False)
    assert names(folder) == ["first.bin", "test.bin"]


def test_nobody_is_told_to_delete_a_folder_of_his_own(make_cifar, tmp_path):
    cifar, contents = make_cifar()
    folder = (tmp_path / "origin" / "tiny-bin").rename(tmp_path / "mine")
    (folder / "first.bin").write_bytes(contents["first.bin"][:-1])
    with pytest.raises(DataError, match=r"first.bin is damaged: .* Replace it with an intact one from http") as caught:
        obtain(cifar.source, folder)
    assert "Delete" not in str(caught.value)


@pytest.mark.parametrize("name", ["tiny-bin", ""])
def test_a_file_in_the_place_of_a_folder_is_named(make_cifar, tmp_path, name):
    cifar, _ = make_cifar()
    path = tmp_path / "data" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("a file")
    with pytest.raises(DataError, match=f"{path} .*it is a file, not a folder"):
        obtain(cifar.source, tmp_path / "data")
    assert path.read_text() == "a file"


def write_archive(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", len(content)
            tar.addfile(member, io.BytesIO(content))


def with_archive(cifar, root, content=None):
    """The source whose archive is the one in the data directory."""
    archive = root / "tiny.tar.gz"
    if content is not None:
        archive.write_bytes(content)
    checksum = f"md5:{hashlib.md5(archive.read_bytes()).hexdigest()}"
    return type(cifar.source)(**{**vars(cifar.source), "checksum": checksum})


@pytest.mark.parametrize("name", ["../evil", "tiny-bin/../../evil", "/evil", "..\\evil", "C:\\evil", "tiny-bin/evil"])
def test_what_is_none_of_the_known_files_is_not_written(make_cifar, root, name):
    cifar, contents = make_cifar()
    known = [(f"tiny-bin/{name}", tarfile.REGTYPE, content) for name, content in contents.items()]
    write_archive(root / "tiny.tar.gz", (name, tarfile.REGTYPE, b"evil"), *known)
    folder = obtain(with_archive(cifar, root), root)
    assert names(folder) == sorted(contents)
    assert not list(root.parent.rglob("*evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_no_files(make_cifar, root, kind):
    cifar, _ = make_cifar()
    write_archive(root / "tiny.tar.gz", ("tiny-bin/first.bin", kind, b""))
    with pytest.raises(DataError, match=r"first.bin is missing"):
        obtain(with_archive(cifar, root), root)
    assert names(root) == ["tiny.tar.gz"]


@pytest.mark.parametrize("content", [b"not gzip", b"", "cut"])
def test_what_is_not_an_archive_is_named(make_cifar, root, origin, content):
    cifar, _ = make_cifar()
    content = origin.read_bytes()[:200] if content == "cut" else content
    with pytest.raises(DataError, match=r"tiny.tar.gz could not be unpacked"):
        obtain(with_archive(cifar, root, content), root)
    assert names(root) == ["tiny.tar.gz"]
