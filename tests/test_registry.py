"""One row per method: what `create` makes of it, and what it says to names and settings that there are not."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import vsam
from vsam.registry import METHODS, find, listed_name

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import method_tables

sys.path.pop(0)

NEEDED = {"ae-sam": {"total_steps": 10}, "vsam-budget": {"budget": 0.5}}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def make(name, **settings):
    model = network()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return vsam.create(name, base, model=model, **{**NEEDED.get(name, {}), **settings})


@pytest.mark.parametrize("name", vsam.list_methods())
def test_every_listed_name_makes_its_class(name):
    optimizer = make(name, rho=0.3, max_grad_norm=1.0)
    assert type(optimizer) is getattr(vsam, str(METHODS[name].kind))
    assert optimizer.model is not None
    assert (optimizer.param_groups[0]["rho"], optimizer.max_grad_norm) == (0.3, 1.0)


def test_every_named_class_of_the_library_has_a_name():
    classes = {name for name in vsam.__all__ if isinstance(getattr(vsam, name), type)}
    methods = {name for name in classes if issubclass(getattr(vsam, name), vsam.SharpnessAware)} - {"SharpnessAware"}
    assert {row.kind for row in METHODS.values()} == methods


def test_a_name_decides_what_it_says():
    assert repr(make("sam").when) == "Always()"
    assert repr(make("sam-5").when) == "Every(k=5)"
    assert repr(make("SAM-12").when) == "Every(k=12)"
    assert repr(make("looksam-3").when) == "Every(k=3)"
    assert make("sam-on").where.only == "norm"
    assert make("vsam-a").between.gamma == 0
    assert make("vsam-budget").between.gamma == 0.75
    assert make("vsam-budget", gamma=0.5).between.gamma == 0.5
    base = torch.optim.SGD(network().parameters())
    assert repr(vsam.create("vsam-budget", base, target="1.6x").when) == "Even(budget=0.25)"


@pytest.mark.parametrize("name", vsam.list_methods())
def test_a_row_names_the_parts_that_its_class_chooses(name):
    optimizer = make(name)
    chosen = [type(part).__name__ for part in (optimizer.when, optimizer.where, optimizer.between)]
    if name == "vsam-a":  # a decay of 0
        chosen[2] = "Plain"
    assert METHODS[name].parts.replace("(only='norm')", "").partition(",")[0] == " × ".join(chosen)


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_a_row_is_complete_and_its_paper_has_an_address(row):
    assert all((row.title, row.summary, row.formula, row.avoid, row.cost, row.search, row.color.startswith("#")))
    assert row.memory
    assert bool(row.link) == (row.reference != "not published: experimental")


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_what_a_row_says_to_reduce_a_part_is_a_setting_of_it(row):
    for said, simpler in row.reduces.items():
        assert said.partition("(")[2].rstrip(")") in repr(eval(f"vsam.{said}"))
        assert simpler in dir(vsam) or simpler == "Momentum the other way"


@pytest.mark.parametrize("path", method_tables.FILES, ids=lambda path: path.name)
def test_the_tables_of_the_pages_are_the_registrys(path):
    text = path.read_text(encoding="utf-8")
    assert all(f"`{row.kind if path == method_tables.README else name}" in text for name, row in METHODS.items())
    assert text == method_tables.renewed(path), "run python scripts/method_tables.py --write"


def test_a_run_lists_the_methods_without_torch():
    code = "import sys, vsam.registry; assert vsam.registry.list_methods() and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_list_is_a_copy_without_losses_and_base():
    vsam.list_methods().clear()
    assert "vsam" in vsam.list_methods()
    assert not {"sgd", "saf", "mesa"} & set(vsam.list_methods())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vsamm", r"There is no method 'vsamm'\. Did you mean 'vsam'\? Known: sam, "),
        ("AESAM", r"Did you mean 'ae-sam'\?"),
        ("looksam", r"Did you mean 'looksam-5'\?"),
        ("saf", r"It is a loss: use vsam\.SAFLoss\."),
        ("bi-lora", r"use vsam\.integrations\.peft\.BiLoRA\."),
        ("sgd", r"It is the base optimizer itself: use that\."),
        ("sam-0", r"There is no method 'sam-0'\."),
        ("sam-1234567890", r"There is no method"),
        ("qqq", r"There is no method 'qqq'\. Known: "),
        (None, r"There is no method None\. Known: "),
        ("x" * 500, r"There is no method 'x{59}\. Known: "),
    ],
)
def test_an_unknown_name_is_answered_by_the_nearest(name, said):
    with pytest.raises(ValueError, match=said):
        find(name)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("vsam", {"gama": 0.9}, r"vsam has no setting 'gama'\. Did you mean 'gamma'\? Known: rho, alpha, "),
        ("sam-5", {"every": 3}, r"sam-5 means every=5: leave out every=, or use vsam\.SAM\."),
        ("vsam-a", {"gamma": 0.5}, r"vsam-a means gamma=0\.0: leave out gamma="),
        (
            "sam",
            {"qqq": 3},
            r"sam has no setting 'qqq'\. Known: rho, every, last, total_steps, only, share, max_grad_norm, guard, ",
        ),
        ("sam", {"lr": 0.1}, r"SAM has no argument 'lr': it belongs to the base optimizer\. Write:"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(name, settings, said):
    with pytest.raises(ValueError, match=said):
        make(name, **settings)


def test_what_a_method_needs_is_named():
    base = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"vsam-budget needs budget: write vsam\.create\('vsam-budget', base, "):
        vsam.create("vsam-budget", base)


def test_a_call_for_another_package_is_answered_by_the_line_to_write():
    with pytest.raises(ValueError, match=r"'lr'.*\n.*\n +optimizer = vsam\.SAM\(base, model=model\)"):
        vsam.create("sam", network().parameters(), rho=0.1, lr=0.1)  # type: ignore[arg-type]


def test_numbers_belong_to_families_only():
    assert listed_name("sam-999999999") == "sam-5"
    assert listed_name("gsam-5") is None
    assert listed_name("sam-05") is None
