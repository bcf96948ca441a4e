"""Every example runs and shows what it claims to show."""

import runpy
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import vsam

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TESTED = {
    "accelerate_loop",  # in integrations/test_loop_pages.py
    "accumulation",
    "alpha",
    "averaging",
    "closure",
    "compare",
    "ddp",  # in distributed/test_examples.py
    "fabric_loop",
    "fsdp2",  # in distributed/test_examples.py
    "lightning_module",
    "listener",
    "mixed_precision",
    "own_mixture",
    "own_part",
    "resume",
    "sharpness",
    "skorch_net",  # in integrations/test_skorch.py
    "timm_loop",  # in pages/test_timm.py
    "transformers_trainer",  # in integrations/test_loop_pages.py
    "without_closure",
    "your_own",
}


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def test_no_example_is_forgotten() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


@pytest.mark.parametrize("name", sorted(TESTED))
def test_an_example_is_small_and_can_be_run_as_a_program(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 60
    assert text.startswith('"""')
    assert text.rstrip().endswith("    main()")


@pytest.mark.parametrize("name", ["closure", "without_closure"])
def test_both_loops_learn_at_a_fraction_of_the_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses, optimizer = load(name)["main"]()
    assert sum(losses[90:100]) < 0.6 * sum(losses[:10])
    assert sum(losses[-10:]) < sum(losses[90:100])
    assert optimizer.num_samples == 40
    assert "40 second gradients in 200 steps" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")  # Lightning's own use of torch
def test_lightning_counts_every_sample_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, trainer = load("lightning_module")["main"]()
    assert float(trainer.callback_metrics["loss"]) < 0.3
    assert float(trainer.callback_metrics["accuracy"]) > 0.85
    assert trainer.optimizers[0].num_samples == 20
    assert "second gradients in 100 steps" in capsys.readouterr().out


def test_fabric_learns_at_a_fraction_of_the_passes() -> None:
    losses, optimizer = load("fabric_loop")["main"]()
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert optimizer.num_samples == 20


def test_a_scaler_changes_nothing_but_the_scale() -> None:
    without, with_scaler, scale = load("mixed_precision")["main"]()
    assert without[-1] < 0.2 * without[0]
    assert with_scaler == without  # a power of two is exact in bfloat16
    assert scale == 2.0**16 * 2**3


def test_averaged_weights_beat_the_last_ones_and_cost_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    found = load("averaging")["main"]()
    assert all(averaged > last for last, averaged in found.values())
    assert capsys.readouterr().out.count("averaged weights") == 2


def test_micro_batches_equal_the_whole_batch() -> None:
    assert load("accumulation")["main"]() < 1e-12


def test_a_resumed_run_ends_with_the_same_weights() -> None:
    assert load("resume")["main"]() is True


def test_mixtures_say_whether_they_were_published() -> None:
    sam, *mixed = load("own_mixture")["main"]()
    assert "Published as SAM" in sam
    assert all("Not a published combination" in description for description in mixed)


def test_the_own_part_samples_more_and_more_and_resumes() -> None:
    example = load("own_part")
    sampled, optimizer = example["main"]()
    shares = [sum(sampled[i : i + 50]) for i in range(0, 250, 50)]
    assert all(low < high for low, high in pairwise(shares))
    assert shares[-1] == 50
    assert repr(optimizer.when) == "Ramp(length=200, seed=0)"
    first = example["Ramp"](200)
    draws = [first.before(step) for step in range(1, 100)]
    second = example["Ramp"](200, seed=1)
    second.load_state_dict(example["Ramp"](200).state_dict())
    assert draws == [second.before(step) for step in range(1, 100)]


def test_the_listener_sees_both_norms_until_it_is_taken_off(capsys: pytest.CaptureFixture[str]) -> None:
    records = load("listener")["main"]()
    assert [record.step for record in records] == list(range(1, 901))
    assert [record.step for record in records if record.sampled] == list(range(1, 901, 5))
    assert all((record.psf_norm is not None) == record.sampled for record in records)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("step") for line in lines) == 10


def test_the_comparison_prints_a_row_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    load("compare")["main"](num_seeds=2, epochs=6)
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()[1:]}
    samples = {"SGD": ("0", "2.00x"), "SAM": ("120", "1.00x"), "SAM-5": ("24", "1.67x"), "vSAM": ("24", "1.67x")}
    assert {name: (row[4], row[-1]) for name, row in rows.items()} == samples
    assert all(20 < float(row[1]) < 100 for row in rows.values())


def test_noise_alone_makes_the_rule_sample_more_with_a_larger_alpha(capsys: pytest.CaptureFixture[str]) -> None:
    fractions = load("alpha")["main"](lengths=(2_000,), alphas=(0.0, 5.0))
    assert 100 / 2_000 < fractions[0.0, 2_000] < 0.09  # the start phase, then one step in 50
    assert fractions[5.0, 2_000] > 1.3 * fractions[0.0, 2_000]
    assert "fraction of steps sampled" in capsys.readouterr().out


def test_the_page_on_flatness_shows_what_the_example_does(capsys: pytest.CaptureFixture[str]) -> None:
    records, found, line = load("sharpness")["main"]()
    assert [record.step for record in records] == [100, 200, 300]
    assert found.top_eigenvalues.converged
    assert found.worst.value >= found.ascent.value > 0
    assert line.losses[10].item() == pytest.approx(found.loss, rel=1e-5)  # the weights themselves
    assert "top eigenvalues" in capsys.readouterr().out


def test_examples_use_public_names_only() -> None:
    for path in EXAMPLES.glob("*.py"):
        for word in path.read_text().replace("(", " ").replace(")", " ").split():
            if word.startswith("vsam.") and word.strip(".,:`[]") != "vsam.amp.GradScaler":
                name = word.split(".")[1].split("[")[0].strip(",:`]")
                assert name in (*vsam.__all__, "lab", "integrations"), f"{path.name}: {word}"
