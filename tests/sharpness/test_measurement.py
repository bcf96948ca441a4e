"""Measurements for parts of many models, and the text of their results."""

import json
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from curved_net import batches, dense, loss, net
from vsam.sharpness import measure
from vsam.sharpness.measurement import PARTS


def top(found: Any) -> float:
    value: float = found.top_eigenvalues[0].value
    return value


def test_frozen_parameters_are_left_out() -> None:
    model, given = net(), batches()
    model[0].requires_grad_(False)
    exact = torch.linalg.eigvalsh(dense(model, given)[2])
    found = measure(model, loss, given, tolerance=1e-6)
    assert found.num_parameters == 18 == len(exact)
    assert top(found) == pytest.approx(exact[-1].item(), rel=1e-5)


def test_layers_are_the_blocks_of_the_hessian() -> None:
    model, given = net(), batches()
    hessian = dense(model, given)[2]
    found = measure(model, loss, given, groups="layer", tolerance=1e-8, what=("top_eigenvalues", "ascent"))
    assert found.layers is not None
    assert list(found.layers) == ["0", "2"]
    for layer, block in (("0", hessian[:25, :25]), ("2", hessian[25:, 25:])):
        assert top(found.layers[layer]) == pytest.approx(torch.linalg.eigvalsh(block)[-1].item(), rel=1e-6)
    assert found.layers["0"].gradient_norm ** 2 + found.layers["2"].gradient_norm ** 2 == pytest.approx(
        found.gradient_norm**2
    )
    groups = {"biases": [model[0].bias, model[2].bias]}
    chosen = measure(model, loss, given, groups=groups, tolerance=1e-8, what="top_eigenvalues").layers
    assert chosen is not None
    rows = [*range(20, 25), *range(40, 43)]
    assert top(chosen["biases"]) == pytest.approx(torch.linalg.eigvalsh(hessian[rows][:, rows])[-1].item(), rel=1e-6)


def test_layers_are_measured_at_the_weights_not_where_the_part_before_ended() -> None:
    found = measure(net(), loss, batches(), groups="layer", rho=0.5, what="random")
    assert found.layers is not None
    assert [layer.loss for layer in found.layers.values()] == [found.loss] * 2


def test_progress_is_told_at_the_weights() -> None:
    model, given = net(), batches()
    before = [parameter.clone() for parameter in model.parameters()]

    def look(stage: str, done: int, total: int) -> None:
        assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True)), stage

    measure(model, loss, given, rho=0.5, what=PARTS, max_iterations=3, groups="layer", progress=look)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_compiled_models_and_parts_are_measured_uncompiled() -> None:
    given = batches()
    expected = top(measure(net(), loss, given))
    whole, part = torch.compile(net(), backend="aot_eager"), net()
    part[0] = torch.compile(part[0], backend="aot_eager")
    for model in (whole, part):
        loss(model, given[0]).backward()  # compiled for training, whose code has no second derivative
        assert top(measure(model, loss, given)) == pytest.approx(expected, rel=1e-12)


def test_attention_is_measured_although_its_fused_form_has_no_second_derivative() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    found = measure(model, lambda model, batch: model(batch).square().mean(), [torch.randn(4, 5, 8)], mode="train")
    assert found.top_eigenvalues is not None
    assert top(found) > 0


def test_weights_are_not_taken_from_autocasts_cache() -> None:
    model = net().float()
    given = [(inputs.float(), targets) for inputs, targets in batches()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = measure(model, loss, given, rho=1.0, what="ascent")
    assert found.ascent is not None
    assert found.ascent.value > 0.05


class Fresh:
    """Batches that are made when they are asked for, and counted while they live."""

    def __init__(self) -> None:
        self.num_alive, self.most = 0, 0

    def __iter__(self) -> Iterator[Any]:
        for seed in range(10):
            inputs, targets = batches((4,), seed)[0]
            weakref.finalize(inputs, self._count, -1)
            self._count(1)
            yield inputs, targets
            del inputs

    def _count(self, change: int) -> None:
        self.num_alive += change
        self.most = max(self.most, self.num_alive)


def test_no_more_than_two_batches_are_alive_at_a_time() -> None:
    given = Fresh()
    found = measure(net(), loss, given, max_iterations=3, max_steps=1, num_probes=2, num_directions=2)
    assert found.num_batches == 10
    assert 1 <= given.most <= 2


def test_the_result_does_not_depend_on_how_the_samples_are_batched() -> None:
    model = net()
    whole = batches((12,))
    split = [(whole[0][0][i : i + 5], whole[0][1][i : i + 5]) for i in (0, 5, 10)]
    one, other = (measure(model, loss, given, what=PARTS, max_iterations=8) for given in (whole, split))
    for part in ("trace", "ascent", "worst", "random", "smallest_eigenvalue"):
        assert getattr(one, part).value == pytest.approx(getattr(other, part).value, rel=1e-6)
    assert top(one) == pytest.approx(top(other), rel=1e-9)
    assert (one.num_batches, other.num_batches, other.num_samples, other.m) == (1, 3, 12, 4)


def test_progress_is_told_by_stage() -> None:
    told: list[tuple[str, int, int]] = []
    measure(
        net(),
        loss,
        batches(),
        what=PARTS,
        max_iterations=4,
        max_steps=2,
        num_starts=2,
        progress=lambda *state: told.append(state),
        groups="layer",
    )
    assert {stage for stage, _, _ in told} == {f"{prefix}{part}" for prefix in ("", "0: ", "2: ") for part in PARTS}
    assert all(1 <= done <= total for _, done, total in told)


def test_the_result_prints_and_serialises() -> None:
    found = measure(net(), loss, batches(), what=PARTS, groups="layer", max_iterations=5)
    text = str(found)
    assert "43 parameters, 19 samples in 3 batches; BatchNorm and dropout as in evaluation" in text
    assert "batch ascent (m = 6.33" in text
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["trace"]["error"] == found.trace.error  # type: ignore[union-attr]
    assert plain["layers"]["0"]["top_eigenvalues"]["converged"] in (True, False)
    assert float(found.trace) == found.trace.value  # type: ignore[arg-type, union-attr]
    only = measure(net(), loss, batches(), what="ascent")
    assert only.trace is None
    assert only.top_eigenvalues is None


def test_single_precision_is_close_to_double() -> None:
    given = batches()
    single = [(inputs.float(), targets) for inputs, targets in given]
    expected, found = measure(net(), loss, given), measure(net().float(), loss, single)
    assert top(found) == pytest.approx(top(expected), rel=1e-3)
    assert found.ascent is not None
    assert found.ascent.value == pytest.approx(expected.ascent.value, rel=1e-3)  # type: ignore[union-attr]
