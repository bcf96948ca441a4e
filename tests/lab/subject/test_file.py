"""A user's file: what is taken from it, and what is said where something is missing or fails."""

import sys

import pytest
import torch

import vsam
from lab.subject.files import GOOD, write
from vsam.lab.errors import UserError
from vsam.lab.subject import is_file, read_file


def test_model_loss_and_batches_are_taken(tmp_path, capsys):
    subject = read_file(write(tmp_path))
    assert (subject.name, subject.rho, len(subject.batches)) == ("mine.py", 0.05, 3)
    assert subject.num_bytes == 4 * sum(one.numel() for one in subject.model.parameters())
    loss = subject.compute(subject.next_batch())
    subject.backward(loss)
    assert loss.ndim == 0
    assert all(one.grad is not None for one in subject.parameters)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "the file prints\n")


def test_base_and_optimizer_of_the_file_count(tmp_path):
    base = "base = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
    subject = read_file(write(tmp_path, more=base))
    assert (type(subject.base), subject.rho) == (torch.optim.AdamW, 0.1)
    assert subject.base_code == ""
    more = "import vsam\noptimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.3)\n"
    subject = read_file(write(tmp_path, more=more))
    assert isinstance(subject.optimizer, vsam.SAM)
    assert subject.base is subject.optimizer.base


@pytest.mark.parametrize(
    ("head", "body", "batches"),
    [
        ("loss(model, batch)", "inputs, targets = batch", "[(torch.ones(4, 20), torch.ones(4).long())]"),
        ("loss(batch)", "inputs, targets = batch", "lambda: [(torch.ones(4, 20), torch.ones(4).long())]"),
        ("loss(model)", "inputs, targets = torch.ones(4, 20), torch.ones(4).long()", None),
        ("loss()", "inputs, targets = torch.ones(4, 20), torch.ones(4).long()", None),
    ],
)
def test_a_loss_may_bring_its_own_data(tmp_path, head, body, batches):
    text = GOOD.replace("loss(model, batch)", head).replace("inputs, targets = batch", body)
    lines = [line for line in text.splitlines() if not line.startswith("batches")]
    path = tmp_path / "own.py"
    path.write_text("\n".join([*lines, f"batches = {batches}"] if batches else lines))
    subject = read_file(str(path))
    assert subject.compute(subject.next_batch()).requires_grad


def test_a_file_is_a_module_beside_its_neighbours_and_not_the_program(tmp_path):
    (tmp_path / "beside_it.py").write_text("width = 20\n")
    (tmp_path / "torch.py").write_text("raise RuntimeError('shadowed')\n")
    more = "import beside_it\nif __name__ == '__main__':\n    raise SystemExit('run as a program')\n"
    before = list(sys.path)
    try:
        assert read_file(write(tmp_path, more=more)).names["beside_it"].width == 20
    finally:
        sys.path[:] = before
        sys.modules.pop("beside_it", None)


LOSS = "return nn.functional.cross_entropy(model(inputs), targets)"
WRONG = {
    "a name": ([("model = ", "net = ")], "", "defines no model. It has net: write model = net."),
    "a class": ([], "model = nn.Linear", "model must be a torch.nn.Module, got the class Linear. Call it"),
    "a number": ([], "model = 3", "model must be a torch.nn.Module, got int."),
    "frozen": ([], "model.requires_grad_(False)", "model has no parameters to train"),
    "no loss": ([("def loss(", "def my_loss(")], "", "defines no loss. It has my_loss: is that it?"),
    "a module": ([], "loss = nn.CrossEntropyLoss()", "loss must be a function, got CrossEntropyLoss. Write:"),
    "three": ([("(model, batch)", "(model, batch, more)")], "", "loss must take model and batch, got 3 arguments."),
    "no batches": ([("batches = ", "data = ")], "", "defines no batches, which loss(model, batch) needs."),
    "empty": ([], "batches = iter([])", "batches is empty: give at least one batch."),
    "tensor": ([], "batches = torch.ones(3)", "batches must be a list or a loader of batches, got Tensor."),
    "failing": (
        [],
        "def batches():\n    return 1 / 0",
        "batches failed on line 15: ZeroDivisionError: division by zero",
    ),
    "exception": ([("torch.manual_seed(0)", "1 / 0")], "", "running it failed on line 5: ZeroDivisionError"),
    "exit": ([], "raise SystemExit(3)", "running it failed on line 14: SystemExit: 3"),
    "syntax": ([("def loss(", "def (")], "", "is not valid Python on line 11: "),
    "nothing": ([], "x = '\0'", "is not valid Python: source code string cannot contain null bytes."),
    "optimizer": ([], "optimizer = 'sgd'", "optimizer must be an optimizer instance, got str."),
    "class": ([], "base = torch.optim.SGD", "base must be an optimizer instance, got the class SGD."),
    "other": ([], "base = torch.optim.SGD([torch.ones(2, requires_grad=True)])", "trains none of model's parameters"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_is_said(tmp_path, name):
    changes, more, said = WRONG[name]
    with pytest.raises(UserError) as caught:
        read_file(write(tmp_path, *changes, more=more))
    assert said in str(caught.value)


BAD_LOSSES = {
    "vector": ("F(model(inputs), targets, reduction='none')", "must return one number, got shape (16,)"),
    "number": ("F(model(inputs), targets).item()", "must return a tensor, got float."),
    "detached": ("F(model(inputs).detach(), targets)", "loss has no gradient"),
    "backward": ("backward(F(model(inputs), targets))", "must not call backward()"),
    "raises": ("F(model(inputs[:, :3]), targets)", "loss failed on line 13: RuntimeError: mat1 and mat2"),
}


@pytest.mark.parametrize("name", BAD_LOSSES)
def test_what_is_wrong_with_a_loss_is_said(tmp_path, name):
    expression, said = BAD_LOSSES[name]
    more = "F = nn.functional.cross_entropy\ndef backward(loss):\n    loss.backward()\n    return loss\n"
    subject = read_file(write(tmp_path, (LOSS, f"return {expression}"), more=more))
    with pytest.raises(UserError) as caught:
        subject.compute(subject.next_batch())
    assert said in str(caught.value)


def test_other_files_are_refused_unopened(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"model": 1}, path)
    assert is_file(str(path))
    with pytest.raises(UserError, match=r"is not a Python file.*Checkpoints and\s+pickles are not loaded"):
        read_file(str(path))
    with pytest.raises(UserError, match=r"cannot be read: No such file or directory"):
        read_file(str(tmp_path / "missing.py"))
    assert not is_file("fashion-mini")
    assert not is_file("recipe.toml")
