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
from vsam._step.misuse import settings_of

MODEL = nn.Linear(3, 2)
BASE = SGD(MODEL.parameters(), lr=0.1)
CALLS: dict[str, tuple[type[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "parameters, class, settings": (vsam.SAM, (MODEL.parameters(), SGD), {"lr": 0.1, "rho": 0.05}, "'lr'"),
    "parameters, class": (vsam.SAM, (MODEL.parameters(), SGD), {"rho": 0.05}, "2 positional"),
    "class by name": (vsam.VSAM, (MODEL.parameters(),), {"base_optimizer": AdamW, "gamma": 0.9}, "'base_optimizer'"),
    "adaptive": (vsam.SAM, (BASE,), {"rho": 2.0, "adaptive": True}, "'adaptive': .*ASAM"),
    "parameters alone": (vsam.GSAM, (MODEL.parameters(),), {}, "got generator"),
    "a list of parameters": (vsam.GSAM, (list(MODEL.parameters()),), {}, "got Parameter"),
    "groups": (vsam.SAM, ([{"params": list(MODEL.parameters())}], SGD), {}, "2 positional"),
    "a class": (vsam.SAM, (AdamW,), {}, "got AdamW"),
    "a class by the name of base": (vsam.SAM, (), {"base": SGD}, "got SGD"),
    "a model": (vsam.LookSAM, (MODEL,), {"every": 3}, "got Linear"),
    "a model in a list": (vsam.LookSAM, ([MODEL],), {}, "got Linear"),
    "nothing": (vsam.SAM, (None,), {"model": MODEL}, "got NoneType"),
    "a partial": (vsam.SAM, (MODEL.parameters(), functools.partial(SGD, lr=0.3)), {}, "2 positional"),
    "optimizer and model": (vsam.ASAM, (BASE, MODEL), {"rho": 0.5}, "only keyword"),
    "the base's setting": (vsam.SAM, (BASE,), {"lr": 0.3}, "'lr': .*base optimizer"),
    "another name of base": (vsam.SAM, (), {"optimizer": BASE}, "'optimizer'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_another_package_names_what_is_wrong_and_shows_lines_that_run(name):
    kind, given, named, wrong = CALLS[name]
    with pytest.raises(ValueError, match=f"{wrong}.* Write:") as caught:
        kind(*given, **named)
    lines = [line.strip() for line in str(caught.value).splitlines()[1:]]
    names: dict[str, Any] = {"torch": torch, "vsam": vsam, "model": nn.Linear(3, 2)}
    exec("\n".join(lines), names)
    assert isinstance(names["optimizer"], vsam.SharpnessAware)


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
    named = ["rho", "every", "last", "total_steps", "only", "share"]
    assert list(inspect.signature(vsam.SAM).parameters) == ["base", "model", *named, "options"]
    assert next(iter(inspect.signature(vsam.SharpnessAware).parameters)) == "base"


def test_the_settings_of_a_class_are_its_keyword_arguments():
    own, options = ["rho", "every", "last", "total_steps", "only", "share"], ["max_grad_norm", "guard", "sync"]
    assert settings_of(vsam.SAM) == [*own, *options]
