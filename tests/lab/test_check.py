"""`vsam check` finds problems of the machine and of a user's file, and none in a correct file."""

import json
import re
from importlib.resources import files

import pytest
import torch

import vsam
from lab.command import assert_refused
from lab.command import vsam as command
from vsam.lab import plugins
from vsam.lab.check import check_machine, check_workload, costs, read_workload
from vsam.lab.data.cifar import CIFAR10
from vsam.lab.errors import RunError, UserError
from vsam.lab.methods import METHODS

GOOD = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
batches = [(torch.randn(16, 20), torch.randint(4, (16,))) for _ in range(3)]
print("the file prints")


def loss(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)
"""
LOSS = "return nn.functional.cross_entropy(model(inputs), targets)"
OPTIMIZER = "import vsam\noptimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1){})\n"
PARTS = """
import torch
import vsam


@vsam.lab.method("mine")
def mine(base, model, rho):
    return vsam.SAM(base, model=model, rho=rho, every=3)


@vsam.lab.model("narrow")
def narrow(num_classes, in_channels):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(28 * 28 * in_channels, num_classes))
"""


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """No file of a test is known to the next one."""
    monkeypatch.setattr(plugins, "_known", {"method": {}, "model": {}, "data": {}})
    monkeypatch.setattr(plugins, "_used", {})


@pytest.fixture
def write(tmp_path):
    def run(*changes, more=""):
        """The good file with texts replaced, each of which must be there, and lines added."""
        text = GOOD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "mine.py"
        path.write_text(text + more)
        return str(path)

    return run


def found(level, *arguments, **options):
    return {one.subject: one.text for one in check_workload(read_workload(*arguments, **options)) if one.level == level}


def test_nothing_is_wrong_with_a_file_that_is_right(write, capsys):
    findings = check_workload(read_workload(write()))
    assert [one.subject for one in findings] == ["loss", "repeatability", "radius", "steps", "perturbation"]
    assert {one.level for one in findings} == {"ok"}
    assert "raises the loss by 5%" in findings[2].text
    assert "3 dry steps of VSAM, 1 with a second gradient" in findings[3].text
    assert capsys.readouterr().out == ""


def test_base_and_optimizer_of_the_file_count(write):
    workload = read_workload(write(more="base = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"))
    assert (type(workload.base), workload.rho) == (torch.optim.AdamW, 0.01)
    workload = read_workload(write(more=OPTIMIZER.format(", rho=0.3")))
    assert (type(workload.optimizer), workload.rho) == (vsam.SAM, 0.3)
    assert workload.base is workload.optimizer.base


def test_the_radius_it_shows_raises_the_loss_that_far(write):
    path = write(more=OPTIMIZER.format(", model=model, rho=0.05"))
    rho = re.search(r"rho = (\S+) raises", found("ok", path)["radius"])[1]
    text = found("ok", path, method="sam")["perturbation"]
    assert re.search(r"and raises the loss by \d+%$", text)
    path = write(more=OPTIMIZER.format(f", model=model, rho={rho}"))
    assert re.search(r"by (\d+)%$", found("ok", path)["perturbation"])[1] in "456"


def test_a_loss_without_a_radius_is_noted(write):
    assert "above zero" in found("note", write((LOSS, f"{LOSS} - 100")))["radius"]


def test_a_loss_may_bring_its_own_data(write):
    data = "inputs, targets = torch.ones(4, 20), torch.ones(4).long()"
    path = write(("loss(model, batch)", "loss(model)"), ("inputs, targets = batch", data), ("batches =", "data ="))
    assert "loss" in found("ok", path)


def test_a_file_of_parts_is_checked_with_a_recipe(tmp_path):
    path = tmp_path / "parts.py"
    path.write_text(PARTS)
    workload = read_workload(str(path), changes=["data.train=96", "batch=16"])
    assert repr(workload.optimizer.when) == "Every(k=3)"
    assert {one.level for one in check_workload(workload)} == {"ok"}


WRONG = {
    "a name": ([("model = ", "net = ")], "", "It has net: write model = net"),
    "a class": ([], "model = nn.Linear", "got the class Linear"),
    "frozen": ([], "model.requires_grad_(False)", "no parameters to train"),
    "no loss": ([("def loss(", "def my_loss(")], "", "It has my_loss"),
    "a module": ([], "loss = nn.CrossEntropyLoss()", "got CrossEntropyLoss"),
    "three": ([("(model, batch)", "(model, batch, more)")], "", "got 3 arguments"),
    "no batches": ([("batches = ", "data = ")], "", "without batches"),
    "empty": ([], "batches = iter([])", "at least one batch"),
    "tensor": ([], "batches = torch.ones(3)", "got Tensor"),
    "failing": ([], "def batches():\n    return 1 / 0", "line 15: ZeroDivisionError"),
    "exception": ([("torch.manual_seed(0)", "1 / 0")], "", "line 5: ZeroDivisionError"),
    "exit": ([], "raise SystemExit(3)", "line 14: SystemExit"),
    "syntax": ([("def loss(", "def (")], "", "line 11: SyntaxError"),
    "optimizer": ([], "optimizer = 'sgd'", "optimizer must be an optimizer instance"),
    "other": ([], "base = torch.optim.SGD([torch.ones(2, requires_grad=True)])", "none of model's parameters"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_is_said(write, name):
    changes, more, said = WRONG[name]
    with pytest.raises(UserError) as caught:
        read_workload(write(*changes, more=more))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "subject", "said"),
    [
        ("F(model(inputs), targets, reduction='none')", "loss", "shape (16,)"),
        ("F(model(inputs), targets).item()", "loss", "got float"),
        ("F(model(inputs).detach(), targets)", "loss", "no gradient"),
        ("backward(F(model(inputs), targets))", "loss", "must not call backward"),
        ("F(model(inputs[:, :3]), targets)", "loss", "line 13: RuntimeError"),
        ("F(model(inputs), targets) * float('nan')", "gradients", "nan"),
        ("F(model(inputs), targets) * 0", "gradients", "zero everywhere"),
    ],
)
def test_no_useful_gradient_is_a_problem(write, expression, subject, said):
    more = "F = nn.functional.cross_entropy\ndef backward(loss):\n    loss.backward()\n    return loss\n"
    assert said in found("problem", write((LOSS, f"return {expression}"), more=more))[subject]


def test_batch_norm_and_dropout_need_the_model(write):
    assert "1.running_mean" in found("problem", write(more=OPTIMIZER.format("")))["model="]
    assert not found("problem", write(more=OPTIMIZER.format(", model=model")))
    norm, dropout = ("nn.BatchNorm1d(32), ", ""), ("nn.Dropout(0.2), ", "")
    assert "dropout" in found("problem", write(norm, more=OPTIMIZER.format("")))["model="]
    assert "to be safe" in found("note", write(norm, dropout, more=OPTIMIZER.format("")))["model="]


OWN_GENERATOR = """
class Noise(nn.Module):
    generator = torch.Generator()

    def forward(self, values):
        return values * (torch.rand(values.shape, generator=self.generator) > 0.5)


model = nn.Sequential(nn.Linear(20, 8), Noise(), nn.Linear(8, 4))
"""


def test_noise_from_a_generator_of_its_own_cannot_be_repeated(write):
    assert "cannot repeat" in found("problem", write(more=OWN_GENERATOR))["repeatability"]


def test_accumulated_gradients_and_another_scaler_are_found(write):
    more = "loss(model, batches[0]).backward()\nscaler = torch.amp.GradScaler('cpu')\n"
    said = found("problem", write(more=more))
    assert said["accumulation"].startswith("0.weight, 0.bias, 1.weight and 3 more")
    assert "vsam.amp.GradScaler" in said["loss scaling"]
    assert not found("problem", write(more="import vsam\nscaler = vsam.amp.GradScaler('cpu')\n"))


@pytest.mark.parametrize(
    ("changes", "more", "subject", "said"),
    [
        ((LOSS, f"{LOSS} * 65536"), "", "loss scaling", "scaled loss"),
        (("(0.2)", "(0.1)"), "model.eval()\n", "mode", "eval mode"),
        (
            ("(0.2)", "(0.1)"),
            "model.spare = nn.Linear(2, 2)\nmodel.forward = lambda x: nn.Sequential(*list(model)[:5])(x)\n",
            "gradients",
            "spare.weight, spare.bias",
        ),
        (("def loss(", "import warnings\n\n\ndef loss("), "", None, ""),
    ],
)
def test_what_may_be_intended_is_noted(write, changes, more, subject, said):
    notes = found("note", write(changes, more=more))
    assert said in notes[subject] if subject else not notes


def test_bfloat16_weights_that_do_not_move_are_found(write):
    more = "model.bfloat16()\nbatches = [(x.bfloat16(), y) for x, y in batches]\n"
    path = write(("(0.2)", "(0.0)"), more=more)
    assert "rounding" in found("problem", path, changes=["rho=1e-4"])["perturbation"]
    assert "perturbation" in found("ok", path, changes=["rho=0.5"])
    assert "rho is 0" in found("note", path, changes=["rho=0"])["perturbation"]


def test_methods_and_settings_that_do_not_fit_are_refused(write):
    path = write()
    for method, change, said in (("sam", "rho=-1", "rho"), ("vsam", "gama=1", "gama"), ("vsamm", "rho=1", "'vsam'")):
        with pytest.raises(UserError, match=said):
            read_workload(path, method=method, changes=[change])
    assert "per-sample" in found("problem", path, method="esam")["loss"]


@pytest.mark.parametrize("method", [name for name in vsam.list_methods() if name != "esam"])
def test_every_method_takes_its_dry_steps(write, method):
    assert not found("problem", write(), method=method)


def test_other_files_are_refused_unopened(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"model": 1}, path)
    with pytest.raises(UserError, match="not a Python file"):
        read_workload(str(path))
    with pytest.raises(UserError, match="cannot be read"):
        read_workload(str(tmp_path / "missing.py"))


def test_a_sampled_step_takes_two_passes_and_nothing_is_trained(write, monkeypatch):
    workload = read_workload(write())
    loss, passes = workload.loss, []
    workload.loss = lambda batch: passes.append(1) or loss(batch)
    monkeypatch.setattr("vsam.lab.check.time.perf_counter", lambda: len(passes))  # a clock that counts passes
    before, spent = [one.detach().clone() for one in workload.parameters], []
    seconds, rows = costs(workload, 0.2, budget=0.25, advance=spent.append)
    by_name = {row["method"]: row for row in rows}
    assert seconds == 1
    assert by_name.keys() == {method.name for method in METHODS}
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert {name: by_name[name]["time"] for name in ("sgd", "sam", "sam-5", "vsam-budget", "mesa")} == pytest.approx(
        {"sgd": 1, "sam": 2, "sam-5": 1.2, "vsam-budget": 1.25, "mesa": 2}
    )
    size = workload.num_bytes
    assert (by_name["vsam-budget"]["kept"], by_name["vsam-budget"]["extra"]) == (size, 2 * size)
    assert {row["method"] for row in rows if row["is_estimate"]} == {"vsam", "vsam-a", "ae-sam", "esam"}
    assert len(spent) >= 5
    assert all(torch.equal(one, old) for one, old in zip(workload.parameters, before, strict=True))
    assert workload.base.param_groups[0]["lr"] == 0.01


def test_steps_that_are_skipped_are_not_timed(write):
    workload = read_workload(write(("targets)", "targets) * float('nan')")))
    with pytest.warns(RuntimeWarning, match="not finite"), pytest.raises(RunError, match="not finite"):
        costs(workload, 0.01)


def test_versions_device_threads_and_data_are_told(tmp_path):
    said = {one.subject: one for one in check_machine(tmp_path)}
    assert list(said) == ["versions", "extras", "device", "threads", "data"]
    assert f"vsam {vsam.__version__}, torch {torch.__version__}" in said["versions"].text
    assert not [one for one in said.values() if one.level == "problem"]


def test_damaged_data_and_too_many_threads_are_problems(tmp_path, monkeypatch):
    (tmp_path / CIFAR10.source.folder).mkdir()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10_000)
    problems = {one.subject: one.text for one in check_machine(tmp_path) if one.level == "problem"}
    assert problems.keys() == {"data", "threads"}
    assert problems["data"].startswith("cifar10 is damaged.")


def test_the_command_shows_findings_costs_and_code(write, tmp_path):
    write()
    shown = command("check", "mine.py", "--budget", "0.25", "--seconds", "0.1", folder=tmp_path)
    assert shown.code == 0, shown.stdout + shown.stderr
    assert "Nothing looks wrong." in shown.stdout
    assert "optimizer = vsam.VSAM(base, model=model, rho=0.05, budget=0.25)" in shown.stdout
    assert "the file prints" not in shown.stdout


def test_the_command_checks_a_recipe_and_the_machine(tmp_path):
    arguments = ("--set", "data.train=96", "--set", "batch=16", "--seconds", "0.1", "--json")
    shown = command("check", "fashion-mini", *arguments, folder=tmp_path)
    assert shown.code == 0, shown.stderr
    content = json.loads(shown.stdout)
    assert {row["method"] for row in content["methods"]} >= {"sgd", "sam", "vsam", "msam"}
    machine = command("check", folder=tmp_path)
    assert machine.code == 0, machine.stdout
    assert "threads" in machine.stdout
    assert not list(tmp_path.iterdir())


def test_a_problem_exits_with_one_and_a_useless_file_with_two(write, tmp_path):
    path = write(more="loss(model, batches[0]).backward()\n")
    shown = command("check", path, "--seconds", "0", "--json", folder=tmp_path)
    assert shown.code == 1
    assert json.loads(shown.stdout)["problems"] == 1
    for options, said in [
        (("--seconds", "-1"), "--seconds"),
        (("--budget", "3"), "--budget"),
        (("--set", "rho"), "'rho'"),
        (("--device", "cpu"), "only for recipes"),
    ]:
        assert_refused(command("check", path, *options, folder=tmp_path), 2, said)
    assert_refused(command("check", "nosuch", folder=tmp_path), 2, "nosuch")
    assert_refused(command("check", "--method", "sam", folder=tmp_path), 2, "FILE.py")


def test_an_accuracy_is_answered_with_the_nearest_settings_of_the_map(tmp_path):
    text = command("check", "--accuracy", "99", "61", folder=tmp_path).stdout
    assert "overfits by 38.0 points" in text
    found = json.loads(command("check", "--accuracy", "99", "61", "--json", folder=tmp_path).stdout)
    rows = json.loads(files("vsam.lab").joinpath("map.json").read_text(encoding="utf-8"))
    assert found["overfitting"] == 38
    far = lambda row: max(abs(row["train_accuracy"] - 99), abs(row["test_accuracy"] - 61))  # noqa: E731
    shown = found["settings"]
    assert len(shown) >= 4
    names = [row["setting"] for row in shown]
    assert max(map(far, shown)) <= min(far(row) for row in rows if row["setting"] not in names)
    overfitting = [row["train_accuracy"] - row["test_accuracy"] for row in shown]
    assert overfitting == sorted(overfitting)
    decided = sum(row["gains"]["SAM"]["low"] > 0 for row in shown)
    assert f"SAM was better in {decided} of {len(shown)}" in text
    assert "no case like yours" not in text
    assert "no case like yours" in command("check", "--accuracy", "100", "96", folder=tmp_path).stdout
    assert "does not overfit" in command("check", "--accuracy", "30", "33", folder=tmp_path).stdout


@pytest.mark.parametrize("given", [("101", "50"), ("50", "-1"), ("nan", "50"), ("50", "inf")])
def test_an_accuracy_is_a_percentage(tmp_path, given):
    assert_refused(command("check", "--accuracy", *given, folder=tmp_path), 2, "percentage from 0 to 100")


def test_fractions_are_not_percentages(tmp_path):
    assert_refused(command("check", "--accuracy", "0.99", "0.61", folder=tmp_path), 2, "--accuracy 99 61")


def test_an_accuracy_stands_alone(tmp_path):
    given = ("check", "cifar10-small", "--accuracy", "99", "61")
    assert_refused(command(*given, folder=tmp_path), 2, "cannot be combined with a file")
