"""The README's table of what a step does elsewhere and here is what its program finds."""

import runpy
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("pytorch_optimizer")
import pytorch_optimizer

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERSION = metadata.version("pytorch_optimizer")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks/elsewhere.py"))


@pytest.mark.skipif(f"pytorch_optimizer {VERSION} " not in README, reason="the README is about another version")
def test_the_table_is_what_the_program_prints(script: dict[str, Any]) -> None:
    assert script["table"]() in README


def test_every_answer_is_yes_for_us(script: dict[str, Any]) -> None:
    answers = {question(script["OURS"]) for question in script["QUESTIONS"].values()}
    assert answers == {True, "1.2"}


def test_an_optimizer_without_a_second_pass_is_not_sam(script: dict[str, Any]) -> None:
    plain = script["Library"](script["_plain"], script["_plain"], lambda optimizer, closure: optimizer.step(closure))
    assert not script["computes_sam"](plain)
    assert not script["skips_not_finite"](plain)
    assert script["returns_the_loss"](plain)
    assert script["resumes"](plain)


@pytest.mark.skipif(not VERSION.startswith("4.1."), reason="written for 4.1")
def test_their_sam_with_a_closure_alone_perturbs_along_the_last_gradient(script: dict[str, Any]) -> None:
    run = script["Run"](script["THEIRS"].sam)
    before, seen = run.weights(), []
    run.model[0].register_forward_pre_hook(lambda layer, inputs: seen.append(layer.weight.detach().clone()))
    run.go(lambda optimizer, closure: optimizer.step(closure), last=1)
    assert torch.equal(seen[0], before[0])  # nothing to perturb along yet
    weight, gradients = run.weights()[0], [p.grad.clone() for p in run.model.parameters()]
    run.go(lambda optimizer, closure: optimizer.step(closure), first=1, last=2)
    norm = torch.stack([g.norm() for g in gradients]).norm()
    torch.testing.assert_close(seen[1], weight + script["RHO"] * gradients[0] / norm, rtol=1e-6, atol=1e-9)


@pytest.mark.skipif(not VERSION.startswith("4.1."), reason="written for 4.1")
def test_their_wsam_takes_a_closure_alone_and_keeps_statistics(script: dict[str, Any]) -> None:
    run = script["Run"](
        lambda model, **options: pytorch_optimizer.WSAM(model, model.parameters(), torch.optim.SGD, **options),
        nn.BatchNorm1d(16),
        lr=0.0,
    )
    run.go(lambda optimizer, closure: optimizer.step(closure))
    assert len(run.losses) == 2 * len(run.batches)
    plain = script["Run"](script["_plain"], nn.BatchNorm1d(16), lr=0.0)
    plain.go(lambda optimizer, closure: closure())
    for name in ("running_mean", "running_var"):  # it puts weights back by subtraction, so not to the bit
        torch.testing.assert_close(getattr(run.model[1], name), getattr(plain.model[1], name), rtol=1e-9, atol=1e-12)
