"""Calls that other packages take are answered by the line to write, and all others are left alone."""

import copy
import functools
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

import vsam
from vsam.arguments import settings_of

MODEL = nn.Linear(3, 2)
BASE = SGD(MODEL.parameters(), lr=0.1)
SAM_LINE = "optimizer = vsam.SAM(base, model=model)"

CALLS: dict[str, tuple[type[Any], tuple[Any, ...], dict[str, Any], str, str]] = {
    "parameters, class, settings": (
        vsam.SAM,
        (MODEL.parameters(), SGD),
        {"lr": 0.1, "momentum": 0.9, "rho": 0.05},
        "base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
        "optimizer = vsam.SAM(base, model=model, rho=0.05)",
    ),
    "class by name": (
        vsam.VSAM,
        (MODEL.parameters(),),
        {"base_optimizer": AdamW, "betas": (0.9, 0.99), "gamma": 0.9},
        "base = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99))",
        "optimizer = vsam.VSAM(base, model=model, gamma=0.9)",
    ),
    "adaptive": (
        vsam.SAM,
        (MODEL.parameters(), SGD),
        {"rho": 2.0, "adaptive": True, "lr": 0.1},
        "base = torch.optim.SGD(model.parameters(), lr=0.1)",
        "optimizer = vsam.ASAM(base, model=model, rho=2.0)",
    ),
    "parameters alone": (
        vsam.GSAM,
        (list(MODEL.parameters()),),
        {"lr": 0.2},
        "base = torch.optim.SGD(model.parameters(), lr=0.2)",
        "optimizer = vsam.GSAM(base, model=model)",
    ),
    "groups": (
        vsam.SAM,
        ([{"params": list(MODEL.parameters())}], SGD),
        {"lr": 0.1},
        "base = torch.optim.SGD(groups, lr=0.1)",
        SAM_LINE,
    ),
    "a class": (
        vsam.SAM,
        (AdamW,),
        {},
        "base = torch.optim.AdamW(model.parameters(), lr=0.001)",
        SAM_LINE,
    ),
    "a model": (
        vsam.LookSAM,
        (MODEL,),
        {"every": 3},
        "base = torch.optim.SGD(model.parameters(), lr=0.1)",
        "optimizer = vsam.LookSAM(base, model=model, every=3)",
    ),
    "a partial": (
        vsam.SAM,
        (MODEL.parameters(), functools.partial(SGD, lr=0.3, momentum=0.5)),
        {},
        "base = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)",
        SAM_LINE,
    ),
    "optimizer and model": (
        vsam.ASAM,
        (BASE, MODEL),
        {"rho": 0.5},
        "base = torch.optim.SGD(…)  # as you have it",
        "optimizer = vsam.ASAM(base, model=model, rho=0.5)",
    ),
    "the base's setting": (
        vsam.SAM,
        (BASE,),
        {"lr": 0.3},
        "base = torch.optim.SGD(model.parameters(), lr=0.3)",
        SAM_LINE,
    ),
    "a value that cannot be written": (
        vsam.SAM,
        (MODEL.parameters(), SGD),
        {"lr": torch.tensor(0.1)},
        "base = torch.optim.SGD(model.parameters(), lr=…)",
        SAM_LINE,
    ),
    "by the name of base": (
        vsam.SAM,
        (),
        {"base": SGD},
        "base = torch.optim.SGD(model.parameters(), lr=0.1)",
        SAM_LINE,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_another_package_gets_the_line_to_write(name):
    kind, given, named, first, second = CALLS[name]
    with pytest.raises(ValueError, match="Write:") as caught:
        kind(*given, **named)
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [first, second]


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if "…" not in call[3] and "groups" not in name])
def test_the_lines_run(name):
    names: dict[str, Any] = {"torch": torch, "vsam": vsam, "model": nn.Linear(3, 2)}
    exec("\n".join(CALLS[name][3:]), names)
    assert isinstance(names["optimizer"], vsam.SharpnessAware)


def test_what_is_wrong_is_said_before_the_lines():
    def said(*given: Any, **named: Any) -> str:
        with pytest.raises(ValueError, match="Write:") as caught:
            vsam.SAM(*given, **named)
        return str(caught.value).partition(" Write:")[0]

    assert said(MODEL) == "base must be a constructed optimizer, or a list of them, got Linear."
    assert said(BASE, MODEL) == "SAM takes base and then only keyword arguments, got 2 positional ones."
    assert said(BASE, lr=1) == "SAM has no argument 'lr': it belongs to the base optimizer."
    assert said(BASE, adaptive=True).endswith("the adaptive method is ASAM, whose rho is about ten times SAM's.")
    assert said(BASE, base_optimizer=SGD).startswith("SAM takes base and then only keyword arguments")


def test_a_class_of_the_users_own_takes_what_it_likes():
    class Own(vsam.SAM):
        def __init__(self, parameters: Any, kind: Any, lr: float) -> None:
            super().__init__(kind(parameters, lr=lr))

    class Renamed(vsam.SAM):
        pass

    assert Own(MODEL.parameters(), SGD, lr=0.1).param_groups[0]["lr"] == 0.1
    with pytest.raises(ValueError, match="Write:"):
        Renamed(MODEL.parameters(), SGD, lr=0.1)  # type: ignore[arg-type,misc,call-arg]


def test_copies_pickles_and_signatures_are_as_ever():
    optimizer = vsam.SAM(SGD(nn.Linear(2, 2).parameters(), lr=0.1), rho=0.2)
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert other.param_groups[0]["rho"] == 0.2
    assert list(inspect.signature(vsam.SAM).parameters) == ["base", "model", "rho", "every", "only", "share", "options"]
    assert next(iter(inspect.signature(vsam.SharpnessAware).parameters)) == "base"


def test_the_settings_of_a_class_say_which_are_needed():
    assert settings_of(vsam.AESAM)["total_steps"] is True
    assert not any(settings_of(vsam.VSAM).values())
    assert {"rho", "every", "only", "share", "max_grad_norm", "guard", "sync"} == set(settings_of(vsam.SAM))
