"""Every program of the gallery runs, draws its picture and shows what its page says."""

import io
import re
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from integrations.tiny import make_model

pytest.importorskip("matplotlib").use("agg")

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "examples" / "gallery"
PAGE = (ROOT / "docs" / "gallery" / "index.md").read_text(encoding="utf-8")
PICTURES = {path.stem: path for path in (ROOT / "docs" / "gallery").iterdir() if path.suffix in (".svg", ".png")}

pytestmark = pytest.mark.slow


def run(name: str, folder: Path) -> Any:
    """Return the result of `main`, after a check that its picture exists in the format that the page shows."""
    result = runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="example")["main"](folder)
    picture = folder / PICTURES[name].name
    assert picture.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")
    assert picture.stat().st_size > 5_000
    return result


def test_every_program_is_on_the_page_with_its_picture_and_command() -> None:
    programs = {path.stem for path in PROGRAMS.glob("*.py")}
    assert programs == set(PICTURES)
    for name in programs:
        assert f"(../../examples/gallery/{name}.py)" in PAGE
        assert f"({PICTURES[name].name})" in PAGE
        assert f"`python examples/gallery/{name}.py docs/gallery`" in PAGE


def test_own_images(tmp_path: Path) -> None:
    plain, sharp = run("own_images", tmp_path).items()
    assert plain[0] == "SGD: 1.00 passes per step"
    assert sharp[0] == "vSAM, budget 0.2: 1.20 passes per step"
    assert all(curve[-1] > 55 for curve in (plain[1], sharp[1]))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.* is deprecated:FutureWarning")  # peft's use of it
def test_a_transformer_and_lora(tmp_path: Path) -> None:
    results = run("transformer", tmp_path)
    for losses, _, _, _ in results.values():
        assert losses[-1] < losses[0]
    assert results["vSAM, LoRA"][2] < 0.1 * results["vSAM"][2] == 0.1 * results["AdamW"][2]
    assert [cost for *_, cost in results.values()] == pytest.approx([1.0, 1.2, 1.2], abs=0.01)
    assert results["vSAM"][1] > 45  # three classes


def make_archive(folder: Path) -> None:
    """The film sentences' place in their package, with sentences made up."""
    words = [("good", 1.5), ("bad", -2.25)]
    lines = [f"{i}\t{words[i % 2][1]}\t{words[i % 2][0]} film {i}\r\n" for i in range(700)]
    text, inner = "".join(lines).encode(), io.BytesIO()
    for target, name, data in (
        (inner, "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt", lambda: text),
        (folder / "vadersentiment-0.tar.gz", "vader/additional_resources/hutto_ICWSM_2014.tar.gz", inner.getvalue),
    ):
        opened = {"name": target} if isinstance(target, Path) else {"fileobj": target}
        with tarfile.open(**opened, mode="w:gz") as archive:
            entry = tarfile.TarInfo(name)
            entry.size = len(data())
            archive.addfile(entry, io.BytesIO(data()))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of transformers
def test_lora_and_bi_lora_on_sentences_made_up(tmp_path: Path) -> None:
    """With a tiny encoder in place of the weights."""
    program = runpy.run_path(str(PROGRAMS / "lora.py"), run_name="example")
    make_archive(tmp_path)
    texts, labels = program["film_sentences"](tmp_path)
    assert texts[:3] == ["good film 0", "bad film 1", "good film 2"]
    assert labels[:3] == [1, 0, 1]

    def load() -> Any:
        def encode(texts: list[str]) -> dict[str, torch.Tensor]:
            return {"input_ids": torch.tensor([[len(word) % 20 for word in text.split()] for text in texts])}

        return encode, make_model()

    results = program["main"](tmp_path, load, lambda: (texts, labels), epochs=3)
    assert (tmp_path / "lora.svg").stat().st_size > 5_000
    plain, bi_lora = results.values()
    assert {*plain.norms} == {0.0}
    assert 0 < max(bi_lora.norms) <= 0.05001
    assert len(bi_lora.accuracies) == len(bi_lora.losses) == 3
    assert bi_lora.losses[-1] < bi_lora.losses[0]


def test_a_budget_is_spent_exactly(tmp_path: Path) -> None:
    rows = run("budget", tmp_path)
    assert {budget: len(sampled) for budget, (_, sampled, _) in rows.items()} == {
        0: 0,
        0.1: 12,
        0.2: 24,
        0.5: 60,
        1: 120,
    }
    assert rows[0.5][1] == list(range(1, 120, 2))
    assert all(min(accuracies) > 40 for accuracies, _, _ in rows.values())


def test_an_own_rule_takes_its_half(tmp_path: Path) -> None:
    rows = {row.label: row for row in run("own_part_in_the_lab", tmp_path)}
    assert {name: row.samples for name, row in rows.items()} == {
        "sgd": 0,
        "sam": 152,
        "first-half": 76,
        "last-half": 76,
    }
    assert all(row.accuracy > 40 for row in rows.values())


def test_quantized_networks_keep_their_accuracy(tmp_path: Path) -> None:
    full, results = run("quantization", tmp_path)
    sizes = [size for _, size in results.values()]
    assert sizes == sorted(sizes)
    assert full > 65
    assert all(accuracy > full - 8 for accuracy, _ in results.values())


def test_two_processes_equal_one(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "two_processes.py"), str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.fullmatch(r"largest difference of a loss: (\S+); same samples: True\n", shown)
    assert found is not None, shown
    assert float(found[1]) < 1e-9
    assert (tmp_path / "two_processes.svg").stat().st_size > 5_000


def test_sams_minimum_is_flatter_by_its_largest_eigenvalue(tmp_path: Path) -> None:
    found = run("flat_minimum", tmp_path)
    assert found["SAM"].top_eigenvalues[0].value < found["SGD"].top_eigenvalues[0].value
    assert all(one.top_eigenvalues.converged for one in found.values())
