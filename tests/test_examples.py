"""Every example runs and shows what it claims to show, and so does the code on the pages."""

import copy
import re
import runpy
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vsam

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PAGES = [
    "README.md",
    "docs/choosing.md",
    "docs/flatness.md",
    "docs/methods/sam.md",
    "docs/methods/asam.md",
    "docs/methods/looksam.md",
    "docs/methods/ae-sam.md",
    "docs/methods/vsam.md",
    "docs/methods/budget.md",
    "docs/methods/msam.md",
    "docs/methods/friendly-sam.md",
    "docs/methods/gsam.md",
    "docs/methods/wsam.md",
    "docs/methods/sam-on.md",
]
TESTED = {
    "accelerate_loop",  # in integrations/test_loop_pages.py
    "accumulation",
    "alpha",
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
    assert sum(losses[90:100]) < 0.6 * sum(losses[:10])  # while every step samples
    assert sum(losses[-10:]) < sum(losses[90:100])  # and while few do
    assert 100 <= optimizer.num_samples < 130  # the start phase, and few more
    assert f"{optimizer.num_samples} second gradients in 200 steps" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")  # Lightning's own use of torch
def test_lightning_counts_every_sample_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, trainer = load("lightning_module")["main"]()
    assert float(trainer.callback_metrics["loss"]) < 0.3
    assert float(trainer.callback_metrics["accuracy"]) > 0.9
    assert 20 < trainer.optimizers[0].num_samples < 50
    assert "second gradients in 100 steps" in capsys.readouterr().out


def test_fabric_learns_at_a_fraction_of_the_passes() -> None:
    losses, optimizer = load("fabric_loop")["main"]()
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert 20 < optimizer.num_samples < 50


def test_a_scaler_changes_nothing_but_the_scale() -> None:
    without, with_scaler, scale = load("mixed_precision")["main"]()
    assert without[-1] < 0.2 * without[0]
    assert with_scaler == without  # a power of two is exact in bfloat16
    assert scale == 2.0**16 * 2**3


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
    draws = [first.wants_sample(step) for step in range(1, 100)]
    second = example["Ramp"](200, seed=1)
    second.load_state_dict(example["Ramp"](200).state_dict())
    assert draws == [second.wants_sample(step) for step in range(1, 100)]


def test_the_listener_sees_the_rate_climb_until_it_is_taken_off(capsys: pytest.CaptureFixture[str]) -> None:
    records = load("listener")["main"]()
    assert [record.step for record in records] == list(range(1, 901))
    assert records[0].rate == 1
    assert records[150].rate == pytest.approx(1 / 50, rel=0.5)
    assert records[-1].rate > records[150].rate
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("step") for line in lines) == 10


def test_the_comparison_prints_a_row_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    load("compare")["main"](num_seeds=2, epochs=6)
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()[1:]}
    assert set(rows) == {"SGD", "SAM", "vSAM"}
    for name, num_samples, speed in (("SGD", "0", "2.00x"), ("SAM", "120", "1.00x")):
        assert rows[name][4] == num_samples
        assert rows[name][-1] == speed
    assert 100 <= int(rows["vSAM"][4]) < 120
    assert all(20 < float(row[1]) < 100 for row in rows.values())


def test_noise_alone_makes_the_law_sample_more_with_a_larger_alpha(capsys: pytest.CaptureFixture[str]) -> None:
    shares = load("alpha")["main"](lengths=(2_000,), alphas=(0.0, 5.0))
    assert 100 / 2_000 < shares[0.0, 2_000] < 0.09  # the start phase, then one step in 50
    assert shares[5.0, 2_000] > 1.3 * shares[0.0, 2_000]
    assert "share of steps sampled" in capsys.readouterr().out


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


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def surroundings() -> dict[str, Any]:
    """The names that a reader of the pages has."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return {
        "torch": torch,
        "vsam": vsam,
        "model": model,
        "base": base,
        "optimizer": vsam.VSAM(base, model=model),
        "criterion": nn.CrossEntropyLoss(),
        "epochs": 1,
        "loader": [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(5)],
    }


@pytest.mark.parametrize("page", sorted(path for path in ROOT.glob("docs/**/*.md")), ids=lambda page: page.stem)
def test_python_on_every_page_compiles(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


@pytest.mark.parametrize("name", PAGES)
def test_python_on_a_page_runs_in_its_order(name: str) -> None:
    found = blocks(ROOT / name, "python")
    names = surroundings()
    for block in found:
        exec(block.replace('"cuda"', '"cpu"').replace("torch.float16", "torch.bfloat16"), names)
    assert found
    assert "optimizer" in names


def test_the_readme_keeps_its_promises_on_clipping_and_scaling() -> None:
    names = surroundings()
    for block in blocks(ROOT / "README.md", "python"):
        exec(block.replace('"cuda"', '"cpu"').replace("torch.float16", "torch.bfloat16"), names)
        if "max_grad_norm" in block:
            break
    optimizer, criterion, model = names["optimizer"], names["criterion"], names["model"]
    inputs, targets = names["loader"][0]

    def closure() -> Any:
        loss = 1_000 * criterion(model(inputs), targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert nn.utils.get_total_norm([p.grad for p in model.parameters()]) == pytest.approx(1.0, rel=1e-4)
    assert names["scaler"].get_scale() == 2.0**16


PLAIN_LOOPS = blocks(ROOT / "docs/loops/plain.md", "diff")


def test_the_closure_on_the_page_is_the_closure_example() -> None:
    after = {line[1:].strip() for line in PLAIN_LOOPS[0].splitlines() if line[:1] in ("+", " ")}
    example = {line.strip() for line in (EXAMPLES / "closure.py").read_text().splitlines()}
    assert {line for line in after if not line.startswith("scheduler =")} <= example


@pytest.mark.parametrize(
    "diff",
    [blocks(ROOT / "README.md", "diff")[0], *PLAIN_LOOPS],  # the others of the README are run in integrations/
    ids=["README", "closure", "perturb", "accumulation", "clipping", "scaling"],
)
def test_both_sides_of_the_diffs_for_plain_loops_train(diff: str) -> None:
    diff = diff.replace('"cuda"', '"cpu"').replace("torch.float16", "torch.bfloat16")
    for sign in "-+":
        names = surroundings()
        del names["optimizer"]
        weights = [layer.weight.clone() for layer in names["model"] if isinstance(layer, nn.Linear)]
        exec("\n".join(line[1:] for line in diff.splitlines() if line[:1] in (sign, " ", "")), names)
        layers = [layer for layer in names["model"] if isinstance(layer, nn.Linear)]
        assert not any(torch.equal(weight, layer.weight) for weight, layer in zip(weights, layers, strict=True))
    assert names["optimizer"].num_samples == names["optimizer"].last.step == len(names["loader"])


def test_the_page_on_parts_runs_and_its_parts_resume() -> None:
    names: dict[str, Any] = {}
    exec("\n".join(blocks(ROOT / "docs/writing-a-part.md", "python")), names)
    optimizer, losses, closure = names["optimizer"], names["losses"], names["closure"]
    assert losses[-1] < 0.5 * losses[0]
    assert 20 < optimizer.num_samples < 100
    for part in (optimizer.when, optimizer.where, optimizer.between):
        assert repr(eval(repr(part), names)) == repr(part)
    optimizer.when.threshold = names["parts"]["when"].threshold = 0.95  # so that the ratio crosses it from now on
    resumed = vsam.SharpnessAware(torch.optim.SGD(names["model"].parameters(), lr=0.0), **names["parts"])
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    weights = [parameter.detach().clone() for parameter in names["model"].parameters()]
    followed = [followed_by(optimizer, closure, is_saved=False)]
    for parameter, weight in zip(names["model"].parameters(), weights, strict=True):
        parameter.data.copy_(weight)
    followed.append(followed_by(resumed, closure, is_saved=True))
    assert followed[0] == followed[1]


def followed_by(optimizer: vsam.SharpnessAware, closure: Any, is_saved: bool) -> list[tuple[float, int]]:
    """The next steps' losses and samples, with a state saved before each or not, which must not matter."""
    seen = []
    for _ in range(40):
        if is_saved:
            optimizer.state_dict()
        seen.append((optimizer.step(closure).item(), optimizer.num_samples))
    return seen
