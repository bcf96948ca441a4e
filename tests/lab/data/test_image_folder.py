import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from vsam.lab.data import DataError, load
from vsam.lab.data.dataset import channel_statistics

RED, GREEN = (200, 0, 0), (0, 100, 0)


def save(path, colour, size=(8, 8), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def folder(tmp_path):
    """Make two classes. `b` has two training images, one of them grey."""
    save(tmp_path / "train/a/1.png", RED)
    save(tmp_path / "train/b/1.png", GREEN)
    save(tmp_path / "train/b/2.PNG", 50, mode="L")
    save(tmp_path / "test/a/1.bmp", RED, size=(3, 20))
    save(tmp_path / "test/b/1.png", GREEN)
    return tmp_path


def test_classes_are_folders_in_alphabetical_order(folder):
    dataset = load(f"folder:{folder}", size=8)
    assert dataset.class_names == ("a", "b")
    assert dataset.train_labels.tolist() == [0, 1, 1]
    assert dataset.test_labels.tolist() == [0, 1]
    assert dataset.name == folder.name


def test_pixels_arrive_channels_first_and_resized(folder):
    dataset = load(f"folder:{folder}", size=8)
    assert dataset.train_images.shape == (3, 3, 8, 8)
    assert dataset.train_images[:, :, 3, 3].tolist() == [list(RED), list(GREEN), [50, 50, 50]]
    assert dataset.test_images[:, :, 7, 7].tolist() == [list(RED), list(GREEN)]
    assert dataset.train_images.is_contiguous()
    assert (dataset.mean, dataset.std) == channel_statistics(dataset.train_images)


def test_rows_and_columns_are_not_mixed_up(folder):
    pixels = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    Image.fromarray(pixels).save(folder / "train/a/1.png")
    image = load(f"folder:{folder}", size=8).train_images[0]
    assert torch.equal(image, torch.from_numpy(pixels).permute(2, 0, 1))


def test_grey_has_one_channel_and_the_usual_size_is_32(folder):
    dataset = load(f"folder:{folder}", grey=True)
    assert dataset.train_images.shape == (3, 1, 32, 32)
    assert dataset.train_images[2].unique().tolist() == [50]


def test_a_camera_image_is_turned_upright(folder):
    image = Image.new("RGB", (8, 8), RED)
    image.paste(GREEN, (0, 0, 8, 4))
    exif = Image.Exif()
    exif[0x0112] = 3  # Turned by 180 degrees.
    image.save(folder / "train/a/1.png", exif=exif)
    upright = load(f"folder:{folder}", size=8).train_images[0]
    assert upright[:, 0, 0].tolist() == list(RED)
    assert upright[:, 7, 0].tolist() == list(GREEN)


def test_hidden_and_other_files_are_passed_over(folder):
    (folder / "train/a/.hidden.png").write_bytes(b"no image")
    (folder / "train/a/notes.txt").write_text("notes")
    (folder / "train/.cache").mkdir()
    assert len(load(f"folder:{folder}").train_images) == 3


@pytest.mark.parametrize("content", [b"no image", b"", "cut"])
def test_an_unreadable_image_is_named(folder, content):
    path = folder / "train/b/1.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:150] if content == "cut" else content)
    with pytest.raises(DataError, match=f"{path} cannot be read as an image: .* Repair or remove it"):
        load(f"folder:{folder}")


def test_sixteen_bits_are_refused_instead_of_turning_white(folder):
    Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16)).save(folder / "train/a/1.png")
    with pytest.raises(DataError, match=r"1.png has more than 8 bits per channel"):
        load(f"folder:{folder}")


def test_an_empty_class_is_named(folder):
    (folder / "test/b/1.png").unlink()
    with pytest.raises(DataError, match=f"{folder / 'test/b'} has no images"):
        load(f"folder:{folder}")


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_split_is_named(folder, split):
    (folder / split).rename(folder / "other")
    with pytest.raises(DataError, match=f"{folder / split} is missing"):
        load(f"folder:{folder}")


@pytest.mark.parametrize(("split", "lacking"), [("train", "test"), ("test", "train")])
def test_a_class_of_one_split_only_is_named(folder, split, lacking):
    save(folder / split / "c/1.png", RED)
    with pytest.raises(DataError, match=f"{folder / lacking} lacks the class 'c'"):
        load(f"folder:{folder}")


def test_a_split_without_classes_is_refused(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="has no classes"):
        load(f"folder:{tmp_path}")


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="absent is not a folder"):
        load(f"folder:{tmp_path / 'absent'}")


def test_a_size_below_one_is_refused(folder):
    with pytest.raises(DataError, match="size must be at least 1, got 0"):
        load(f"folder:{folder}", size=0)


def test_no_other_program_is_started_for_content_that_is_no_image_of_ours(folder, tmp_path_factory, monkeypatch):
    """Pillow goes by the content, whatever the name, and has Ghostscript draw EPS."""
    programs = tmp_path_factory.mktemp("programs")
    (programs / "gs").write_text(f"#!/bin/sh\ntouch {programs}/ran\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    Image.new("RGB", (8, 8)).save(folder / "train/a/1.png", format="EPS")
    with pytest.raises(DataError, match=r"1\.png cannot be read as an image"):
        load(f"folder:{folder}", size=8)
    assert not (programs / "ran").exists()
