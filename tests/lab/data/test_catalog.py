import gzip

import pytest

from vsam.lab.data import DEFAULT, DataError, catalog, describe, load, names
from vsam.lab.data import fashion as fashion_module
from vsam.lab.data.cifar import CIFAR10


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_module, "_DEBIAN_FOLDER", tmp_path / "absent")
    monkeypatch.setenv("VSAM_DATA", str(tmp_path / "data"))


def by_name(data_dir=None):
    return {row.name: row for row in describe(data_dir)}


def test_names_are_those_of_the_recipes():
    assert names() == ("fashion-mini", "fashion-mnist", "cifar10", "cifar100", "folder")
    assert DEFAULT == "fashion-mini"
    assert tuple(by_name()) == names()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar-10", "no dataset 'cifar-10'. Did you mean 'cifar10'?"),
        ("imagenet", r"Known: fashion-mini, .* folder:PATH"),
        ("cifar10:somewhere", "no dataset 'cifar10:somewhere'"),
        ("folder", "folder needs a path: write folder:PATH"),
        ("folder:", "folder needs a path"),
    ],
)
def test_a_wrong_name_is_told_the_right_one(name, message):
    with pytest.raises(DataError, match=message):
        load(name)


@pytest.mark.parametrize("setting", [{"size": 16}, {"grey": False}])
def test_settings_of_folders_are_refused_elsewhere(setting):
    with pytest.raises(DataError, match="size and grey are for folder:PATH only"):
        load("fashion-mini", **setting)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_without_leave_nothing_is_downloaded(name, tmp_path):
    with pytest.raises(DataError, match=r"CIFAR-100? is not in .*data. Put cifar-100?-binary.tar.gz"):
        load(name, allow_download=False)
    assert not (tmp_path / "data").exists()


def test_an_error_is_a_value_error():
    assert issubclass(DataError, ValueError)


def test_the_description_of_the_default_is_true():
    row, dataset = by_name()[DEFAULT], load()
    assert (row.num_classes, row.num_train, row.num_test) == (
        dataset.num_classes,
        len(dataset.train_labels),
        len(dataset.test_labels),
    )
    assert row.image_shape == dataset.image_shape
    assert row.found


def test_what_is_absent_says_how_to_get_it(tmp_path):
    rows = by_name()
    assert [name for name, row in rows.items() if row.found] == ["fashion-mini"]
    assert CIFAR10.source.url in rows["cifar10"].how_to_get
    assert str(tmp_path / "data") in rows["cifar10"].how_to_get
    assert "dataset-fashion-mnist" in rows["fashion-mnist"].how_to_get


def fill(path, size):
    """A file of zeros that takes no room."""
    with path.open("wb") as stream:
        stream.truncate(size)


def test_an_archive_is_found_and_a_damaged_one_named(make_cifar, tmp_path, monkeypatch):
    cifar, _ = make_cifar()
    archive = tmp_path / "origin" / "tiny.tar.gz"
    monkeypatch.setattr(catalog, "_CIFARS", {"tiny": cifar})
    (tmp_path / "data").mkdir()
    copy = tmp_path / "data" / "tiny.tar.gz"
    copy.write_bytes(archive.read_bytes())
    assert by_name()["tiny"].found == str(copy)
    copy.write_bytes(archive.read_bytes()[:-1])
    row = by_name()["tiny"]
    assert row.found is None
    assert row.damage.startswith(f"{copy} is damaged: its checksum is")


def test_a_whole_folder_is_found_and_a_damaged_one_named(tmp_path):
    folder = tmp_path / CIFAR10.source.folder
    folder.mkdir()
    for file in CIFAR10.source.files:
        fill(folder / file.name, file.size)
    assert by_name(tmp_path)["cifar10"].found == str(folder)
    assert by_name(folder)["cifar10"].found == str(folder)
    (folder / "data_batch_3.bin").unlink()
    row = by_name(tmp_path)["cifar10"]
    assert row.found is None
    assert "data_batch_3.bin is missing" in row.damage
    assert f"Delete {folder}" in row.damage


def test_links_to_nowhere_are_damage(tmp_path):
    (tmp_path / CIFAR10.source.folder).symlink_to(tmp_path / "nowhere")
    (tmp_path / "fashion-mnist").symlink_to(tmp_path / "nowhere")
    rows = by_name(tmp_path)
    for name in ("cifar10", "fashion-mnist"):
        assert rows[name].found is None
        assert "is a link to" in rows[name].damage
    assert rows["cifar100"].damage is None


def test_a_data_directory_that_is_a_file_is_damage_too(tmp_path):
    (tmp_path / "file").touch()
    rows = by_name(tmp_path / "file")
    for name in ("fashion-mnist", "cifar10", "cifar100"):
        assert "it is a file, not a folder" in rows[name].damage


@pytest.mark.parametrize("kind", ["unpacked", "packed"])
def test_fashion_is_found_when_all_four_files_are_there(tmp_path, kind):
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for file in fashion_module.FASHION:
        row = by_name(tmp_path)["fashion-mnist"]
        assert row.found is None
        assert f"neither {file.name}.gz" in row.damage
        if kind == "unpacked":
            fill(folder / file.name, file.size)
        else:
            (folder / f"{file.name}.gz").write_bytes(gzip.compress(bytes(file.size), 1))
    # The contents, which are wrong, take too long to be looked at in a list.
    assert by_name(tmp_path)["fashion-mnist"].found == str(folder)


def test_a_data_directory_that_is_a_file_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_text("not a folder")
    with pytest.raises(DataError, match=r"cannot be used.*Choose another --data-dir"):
        load("cifar10", path)
