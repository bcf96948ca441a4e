import gzip
import hashlib
import io
import os
import runpy
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from vsam.lab.data import DataError, load
from vsam.lab.data import fashion as module
from vsam.lab.data.fashion import FASHION, check_fashion, find_fashion, load_fashion
from vsam.lab.data.sources import KnownFile

REPOSITORY = Path(__file__).resolve().parents[3]


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.tobytes()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Six training and four test images as idx files in `tmp_path/fashion-mnist`, and their description."""
    monkeypatch.setattr(module, "_DEBIAN_FOLDER", tmp_path / "absent")
    generator = np.random.default_rng(0)
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    known, arrays = [], []
    for file, count in zip(FASHION, (6, 6, 4, 4), strict=True):
        shape = (count, 28, 28) if "images" in file.name else (count,)
        array = generator.integers(0, 10, shape, dtype=np.uint8)
        content = idx(array)
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(content))
        known.append(KnownFile(file.name, len(content), f"md5:{hashlib.md5(content).hexdigest()}"))
        arrays.append(array)
    return tuple(known), arrays, folder


def test_the_small_one_is_balanced_grey_and_ready():
    mini = load()
    assert repr(mini) == "<Dataset fashion-mini: 4000 train, 1000 test, 10 classes, 1×28×28>"
    assert mini.train_labels.bincount().tolist() == [400] * 10
    assert mini.test_labels.bincount().tolist() == [100] * 10
    # The full set has mean 0.2860 and std 0.3530.
    assert mini.mean == pytest.approx((0.286,), abs=0.01)
    assert mini.std == pytest.approx((0.353,), abs=0.01)


def test_the_small_ones_splits_share_no_image():
    mini = load("fashion-mini")
    train = {image.numpy().tobytes() for image in mini.train_images}
    assert len(train) == 4000
    assert not train & {image.numpy().tobytes() for image in mini.test_images}


def test_the_small_one_comes_with_its_licence():
    notice = (Path(module.__file__).parent / "fashion_mini.NOTICE").read_text()
    assert "Zalando SE" in notice
    assert "The MIT License" in notice


@pytest.mark.skipif(find_fashion(Path("absent")) is None, reason="the full Fashion-MNIST is not installed")
def test_the_script_makes_the_same_small_one_again(tmp_path, monkeypatch):
    script, again = REPOSITORY / "scripts/make_fashion_mini.py", tmp_path / "again.npz"
    monkeypatch.setattr(sys, "argv", [str(script), "--out", str(again), "--data-dir", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    # The arrays, not the bytes of the file: another zlib may compress in another way.
    with np.load(again) as new, np.load(Path(module.__file__).parent / "fashion_mini.npz") as old:
        assert new.files == old.files
        assert all(np.array_equal(new[name], old[name]) for name in new.files)


def test_idx_files_are_read_in_their_order(tiny, tmp_path):
    description, (train_images, train_labels, test_images, test_labels), _ = tiny
    dataset = load_fashion(tmp_path, description)
    assert torch.equal(dataset.train_images[:, 0], torch.from_numpy(train_images))
    assert torch.equal(dataset.test_images[:, 0], torch.from_numpy(test_images))
    assert dataset.train_labels.tolist() == train_labels.tolist()
    assert dataset.test_labels.tolist() == test_labels.tolist()


def test_the_users_folder_comes_before_debians(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_DEBIAN_FOLDER", tmp_path)
    assert find_fashion(tmp_path) == tmp_path / "fashion-mnist"
    assert find_fashion(tmp_path / "elsewhere") == tmp_path


def test_where_it_is_missing_the_error_says_how_to_get_it(tiny, tmp_path):
    with pytest.raises(DataError, match=r"Fashion-MNIST is not in .*dataset-fashion-mnist"):
        load_fashion(tmp_path / "elsewhere", tiny[0])


def test_a_missing_file_is_named(tiny, tmp_path):
    description, _, folder = tiny
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"incomplete: it has neither t10k-labels-idx1-ubyte.gz"):
        load_fashion(tmp_path, description)


@pytest.mark.parametrize("damage", ["cut", "flipped", "not deflate", "not gzip", "other content"])
def test_a_damaged_file_is_named(tiny, tmp_path, damage):
    description, _, folder = tiny
    path = folder / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:middle],
            "flipped": content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :],
            "not deflate": content[:10] + b"\xff" + content[11:],
            "not gzip": b"<html>",
            "other content": gzip.compress(idx(np.zeros((6, 28, 28), dtype=np.uint8))),
        }[damage]
    )
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz is damaged.*Install Debian's package"):
        load_fashion(tmp_path, description)


def test_a_file_that_is_not_idx_is_named(tiny, tmp_path):
    description, _, folder = tiny
    content = b"\x00\x00\x0d\x01" + b"\x00" * 40
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    other = KnownFile("train-images-idx3-ubyte", len(content), f"md5:{hashlib.md5(content).hexdigest()}")
    with pytest.raises(DataError, match="is not an idx file of bytes"):
        load_fashion(tmp_path, (other, *description[1:]))


def unpack(folder):
    for path in folder.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()


def test_unpacked_files_are_read_too(tiny, tmp_path):
    description, arrays, folder = tiny
    unpack(folder)
    dataset = load_fashion(tmp_path, description)
    assert torch.equal(dataset.train_images[:, 0], torch.from_numpy(arrays[0]))
    assert dataset.test_labels.tolist() == arrays[3].tolist()


def test_packed_and_unpacked_files_may_be_mixed(tiny, tmp_path):
    description, arrays, folder = tiny
    path = folder / "train-labels-idx1-ubyte.gz"
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    assert load_fashion(tmp_path, description).train_labels.tolist() == arrays[1].tolist()


@pytest.mark.parametrize("damage", ["cut", "other content"])
def test_a_damaged_unpacked_file_is_named(tiny, tmp_path, damage):
    description, _, folder = tiny
    unpack(folder)
    path = folder / "train-images-idx3-ubyte"
    content = path.read_bytes()
    path.write_bytes(content[:-1] if damage == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        DataError, match=rf"{path} is damaged: .* Replace it with an intact one.*Install Debian's package"
    ):
        load_fashion(tmp_path, description)


def test_the_folder_itself_is_taken_for_the_data_directory(tiny, tmp_path):
    _, _, folder = tiny
    assert find_fashion(folder) == folder
    other = folder.rename(tmp_path / "mine")
    assert find_fashion(other) == other
    (other / "t10k-labels-idx1-ubyte.gz").unlink()
    assert find_fashion(other) is None


def test_a_link_that_leads_nowhere_is_named_and_debians_is_not_taken_instead(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_DEBIAN_FOLDER", tiny[2])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "fashion-mnist").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"fashion-mnist is a link to .*nowhere, which does not exist"):
        load_fashion(tmp_path / "data", tiny[0])


def test_gzip_in_several_pieces_is_no_damage(tiny):
    description, _, folder = tiny
    path = folder / "train-images-idx3-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:100]) + gzip.compress(content[100:]))
    check_fashion(folder, description)


def test_a_file_that_unpacks_to_more_than_memory_holds_is_refused_early(tiny, tmp_path, monkeypatch):
    known, _, folder = tiny
    bomb = io.BytesIO()
    with gzip.open(bomb, "wb", 1) as packed:
        for _ in range(64):
            packed.write(bytes(2**20))
    (folder / f"{known[0].name}.gz").write_bytes(bomb.getvalue())
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="its content has more bytes instead of"):
            load_fashion(tmp_path, known)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tiny, tmp_path):
    known, _, folder = tiny
    (folder / f"{known[0].name}.gz").unlink()
    os.mkfifo(folder / f"{known[0].name}.gz")
    with pytest.raises(DataError, match="is not a regular file"):
        load_fashion(tmp_path, known)
