"""The scripts and pages on transformers' and accelerate's loops do what they show."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments

import vsam
from integrations.tiny import make_arguments, make_dataset, make_model, reset_accelerate

ROOT = Path(__file__).resolve().parents[2]
LOOPS = ROOT / "docs" / "loops"

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> None:
    reset_accelerate()


def example(name: str) -> Any:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="example")["main"]()


@pytest.mark.parametrize("name", ["transformers_trainer", "accelerate_loop"])
def test_the_examples_learn_at_a_fraction_of_the_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses, optimizer = example(name)
    assert losses[-1] < 0.6 * losses[0]
    shown = re.search(r"(\d+) second gradients in (\d+) steps", capsys.readouterr().out)
    assert shown is not None
    assert int(shown[1]) == optimizer.num_samples < 0.6 * int(shown[2])


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (LOOPS / page).read_text(), re.DOTALL | re.MULTILINE)


def sides(diff: str) -> list[str]:
    """The script before and after."""
    return ["\n".join(line[1:] for line in diff.splitlines() if line[:1] in (side, " ", "")) for side in "-+"]


def arguments(folder: str, **settings: Any) -> TrainingArguments:
    return make_arguments(Path(folder), **settings)


def test_the_page_on_transformers(tmp_path: Path) -> None:
    (diff,) = blocks("transformers.md", "diff")
    names: dict[str, Any] = {}
    for script in sides(diff):
        reset_accelerate()
        model = make_model()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        names = {"torch": torch, "Trainer": Trainer, "TrainingArguments": arguments, "folder": str(tmp_path)}
        names |= {"model": model, "dataset": make_dataset()}
        exec(script, names)
        assert not any(map(torch.equal, model.parameters(), before))
    assert names["trainer"].optimizer.num_samples == 1  # the first of 4 steps
    for block in blocks("transformers.md", "python"):
        exec(block, names)
        if "trainer =" in block:
            names["trainer"].train()
            assert 0 < names["trainer"].optimizer.num_samples < 4
    assert type(names["trainer"].optimizer.optimizer) is vsam.LookSAM
    trainer = names["CountingTrainer"](make_model(), names["arguments"], train_dataset=make_dataset())
    trainer.optimizer_cls_and_kwargs = (vsam.SAM, {})
    trainer.train()
    assert trainer.num_batches == 8
    assert "training_step" in vars(names["MyTrainer"].__mro__[1])


def surroundings() -> dict[str, Any]:
    reset_accelerate()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    data = TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))
    names = {"torch": torch, "model": model, "criterion": nn.CrossEntropyLoss(), "loader": DataLoader(data, 4)}
    return names | {"before": [parameter.detach().clone() for parameter in model.parameters()]}


def test_the_page_on_accelerate() -> None:
    names: dict[str, Any] = {}
    closures, without = blocks("accelerate.md", "diff")
    accumulation, length = blocks("accelerate.md", "python")
    for diff in (without, closures):
        for script in sides(diff):
            names = surroundings()
            exec(script, names)
            assert not all(map(torch.equal, names["model"].parameters(), names["before"]))
        assert names["optimizer"].num_samples == 2  # of 6 steps
    for num_samples in (2, 3):  # of 9 and 12 steps
        exec(accumulation, names)
        assert names["optimizer"].num_samples == num_samples
    names["optimizer"] = vsam.AESAM(names["base"], model=names["model"])
    exec(length, names | {"num_epochs": 5})
    assert names["optimizer"].when.total_steps == 5 * 3
