"""Perturbing rounded weights: the second pass runs at Q(w) + e, and the offsets are zero outside of it."""

import json

import torch
from torch import nn
from torch.nn import functional as F

import vsam
from research.rounded import changed_fraction, main, perturb_rounded
from vsam.quantize import QuantizedLayer, parameter_groups, quantize


def make():
    torch.manual_seed(0)
    full = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    return quantize(full), torch.rand(8, 4).double(), torch.randint(3, (8,))


def test_the_second_pass_runs_at_the_rounded_weights_plus_the_offset():
    model, inputs, labels = make()
    offsets = perturb_rounded(model)
    layers = [one for one in model.modules() if isinstance(one, QuantizedLayer)]
    for parameter in model.parameters():
        parameter.requires_grad_(any(parameter is one for one in (*offsets, *(layer.weight for layer in layers))))
    weights = [layer.weight for layer in layers]
    base = torch.optim.SGD([{"params": offsets, "lr": 0.0}, {"params": weights, "perturb": False}], lr=0.1)
    optimizer = vsam.SAM(base, model=model, rho=0.3)
    seen = []

    def closure():
        optimizer.zero_grad()
        used = [layer.quantized_weight() for layer in layers]
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        seen.append(([one.detach().clone() for one in used], [one.grad.clone() for one in offsets]))
        return loss

    optimizer.step(closure)
    (rounded, gradients), (moved, _) = seen
    norm = torch.stack([one.norm() for one in gradients]).norm()
    for before, after, gradient in zip(rounded, moved, gradients, strict=True):
        torch.testing.assert_close(after, before + 0.3 * gradient / norm, rtol=1e-9, atol=1e-12)
    assert all(not one.any() for one in offsets)


def test_few_integers_change_under_a_small_perturbation_and_all_weights_are_back():
    model, inputs, labels = make()
    model(inputs)
    before = [one.clone() for one in model.parameters()]
    small, large = (changed_fraction(model, rho, inputs, labels) for rho in (1e-4, 5.0))
    assert 0 <= small < large <= 1
    assert all(torch.equal(one, old) for one, old in zip(model.parameters(), before, strict=True))
    groups = parameter_groups(model)
    assert len(groups) == 2


def test_the_program_resumes(tmp_path, monkeypatch):
    from research import rounded

    monkeypatch.setattr(rounded, "full_precision", lambda *_: None)
    monkeypatch.setattr(rounded, "run", lambda *_: {"accuracy": 1.0})
    out = tmp_path / "rows.json"
    arguments = ["--out", str(out), "--seeds", "2", "--rho", "0.1"]
    main(arguments)
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * 3
    monkeypatch.setattr(rounded, "run", None)  # nothing is left to run
    main(arguments)
    assert json.loads(out.read_text())["rows"] == rows
