"""A measurement leaves no trace, also where it fails."""

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import vsam
from curved_net import batches, loss, net
from vsam.sharpness import landscape, measure, radius

EVERYTHING = vsam.sharpness.measurement.PARTS


def noisy() -> nn.Module:
    """A network whose layers draw and count, one of them frozen, one in evaluation mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 3)).double()
    model[0].weight.requires_grad_(False)
    model[2].eval()
    model[4].weight.grad = torch.ones_like(model[4].weight)
    return model


def loader() -> DataLoader[Any]:
    inputs, targets = (torch.cat(parts) for parts in zip(*batches((8, 8)), strict=True))
    return DataLoader(
        TensorDataset(inputs, targets), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3)
    )


def everything(model: nn.Module, given: Any) -> list[Any]:
    tensors = [*model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return [
        [tensor.clone() for tensor in tensors],
        [parameter.data_ptr() for parameter in model.parameters()],
        [id(parameter.grad) for parameter in model.parameters()],
        [(module.training, parameter.requires_grad) for module in model.modules() for parameter in module.parameters()],
        random.getstate(),
        torch.get_rng_state(),
        given.generator.get_state(),
        torch.is_grad_enabled(),
    ]


def assert_same(before: Any, after: Any) -> None:
    if isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            assert_same(one, other)
    else:
        assert torch.equal(before, after) if isinstance(before, Tensor) else before == after


def drawing(model: nn.Module, batch: Any) -> Tensor:
    return loss(model, batch) * (1 + 0.1 * random.random())


@pytest.mark.parametrize("mode", ["eval", "train", "unchanged"])
def test_everything_is_as_before(mode: Any) -> None:
    model, given = noisy(), loader()
    before = everything(model, given)
    with torch.no_grad():
        found = measure(model, drawing, given, what=EVERYTHING, mode=mode, max_iterations=4, max_steps=3, num_probes=2)
        landscape(model, drawing, given, num_points=2, mode=mode)
        assert radius(model, drawing, given, mode=mode) > 0
    assert found.mode == mode
    assert_same(before, everything(model, given))


def failing(calls: Iterator[int], kind: type[BaseException]) -> Any:
    def function(model: nn.Module, batch: Any) -> Tensor:
        if next(calls) == 0:
            raise kind("in the middle")
        return drawing(model, batch)

    return function


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_everything_is_as_before_after_an_exception(kind: type[BaseException]) -> None:
    model, given = noisy(), loader()
    before = everything(model, given)
    for number in (1, 3, 5, 9):  # at the weights, and at points away from them
        with pytest.raises(kind, match="in the middle"):
            measure(
                model, failing(iter(range(number, -1, -1)), kind), given, what=("ascent", "worst"), mode="train", rho=1
            )
        assert_same(before, everything(model, given))
    with pytest.raises(kind):
        landscape(model, failing(iter(range(5, -1, -1)), kind), given, mode="train")
    assert_same(before, everything(model, given))
    for number in (1, 2, 5):
        with pytest.raises(kind, match="in the middle"):
            radius(model, failing(iter(range(number, -1, -1)), kind), given, rise=3.0)
        assert_same(before, everything(model, given))


def interrupt_at(number: int) -> Any:
    """A trace function that interrupts at the line of this number in the module that restores everything."""
    lines = iter(range(1, number + 1))

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith("sharpness/session.py"):
            return None
        if event == "line" and next(lines, None) == number:
            raise KeyboardInterrupt
        return trace

    return trace


def test_everything_is_as_before_after_an_interrupt_at_any_line() -> None:
    model, given = noisy(), loader()
    before, number, was_interrupted = everything(model, given), 0, True
    while was_interrupted:
        number, was_interrupted = number + 1, False
        sys.settrace(interrupt_at(number))
        try:
            measure(model, drawing, given, what="ascent", mode="train")
        except KeyboardInterrupt:
            was_interrupted = True
        finally:
            sys.settrace(None)
        assert_same(before, everything(model, given))
    assert number > 100


def test_dropout_and_shuffling_are_the_same_in_every_pass() -> None:
    """Otherwise the noise of dropout would be taken for sharpness."""
    model, given = noisy(), loader()
    found = measure(model, loss, given, rho=0, mode="train", what=("ascent", "random", "top_eigenvalues"))
    assert found.ascent is not None
    assert found.batch_ascent is not None
    assert found.random is not None
    assert found.ascent.value == found.batch_ascent.value == found.random.value == 0
    again = measure(model, loss, given, rho=0, mode="train", what="top_eigenvalues")
    assert found.top_eigenvalues is not None
    assert again.top_eigenvalues is not None
    assert torch.equal(found.top_eigenvalues.values, again.top_eigenvalues.values)


def test_the_generator_of_a_batch_sampler_is_rewound_too() -> None:
    model, whole, generator = noisy(), loader().dataset, torch.Generator().manual_seed(3)
    sampler = RandomSampler(range(16), generator=generator)
    given, before = DataLoader(whole, batch_sampler=BatchSampler(sampler, 6, False)), generator.get_state()
    found = measure(model, loss, given, rho=0, mode="train", what=("ascent", "random"))
    assert torch.equal(generator.get_state(), before)
    assert found.random is not None
    assert found.random.value == 0


@pytest.mark.filterwarnings("ignore")  # of nested tensors, where torch takes its fast path
def test_passes_with_and_without_gradients_compute_the_same_where_there_is_padding() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, padding = nn.TransformerEncoder(layer, 1), torch.tensor([[False, False, True]] * 4)

    def error(model: nn.Module, batch: Tensor) -> Tensor:
        return model(batch, src_key_padding_mask=padding).square().sum(-1).sqrt().mean()

    given = [torch.randn(4, 3, 8)]
    found = measure(model, error, given, rho=0, what="ascent").ascent
    assert found is not None
    assert found.value == 0
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_mode_is_what_the_layers_see() -> None:
    model, given = noisy(), loader()
    losses = [measure(model, loss, given, what="ascent", mode=mode).loss for mode in ("eval", "train", "unchanged")]
    assert len(set(losses)) == 3
    model.eval()
    whole = next(iter(DataLoader(given.dataset, batch_size=16)))
    assert losses[0] == pytest.approx(loss(model, whole).item(), rel=1e-12)


def test_a_step_under_way_is_refused_and_the_step_goes_on() -> None:
    model, given = net(), batches()
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    loss(model, given[0]).backward()
    assert optimizer.perturb()
    with pytest.raises(RuntimeError, match=r"between perturb\(\) and step\(\)"):
        measure(model, loss, given)
    loss(model, given[0]).backward()
    optimizer.step()
    assert optimizer.num_samples == 1


def test_measuring_between_steps_changes_nothing_about_the_run() -> None:
    """The optimizer notes the generators at a step's first forward pass, which must not be that of a measurement."""

    def train(is_measured: bool) -> Tensor:
        model, given = noisy().train(), batches()
        optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.5), model=model, rho=0.5)
        for batch in given:
            if is_measured:
                measure(model, loss, given, what="ascent", mode="train")
            torch.rand(3)
            loss(model, batch).backward()
            if optimizer.perturb():
                loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model[4].weight.detach()  # type: ignore[index, return-value]

    assert torch.equal(train(False), train(True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (iter([1]), r"write list\(batches\)"),
        (torch.ones(3, 4), r"\[\(inputs, targets\)\]"),
        ([], "batches is empty"),
        ([(1, 2)], "counts the samples"),
    ],
)
def test_batches_that_cannot_be_are_explained(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(net(), loss, given)


def test_other_input_that_cannot_be_is_explained() -> None:
    model, given = net(), batches()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mode": "evaluation"}, "mode must be 'eval', 'train' or 'unchanged'"),
        ({"what": "eigenvalues"}, "what must be some of top_eigenvalues"),
        ({"rho": -1}, "rho must not be negative"),
        ({"num_probes": 1}, "num_probes must be at least 2"),
        ({"groups": {"head": [nn.Parameter(torch.ones(1))]}}, "trainable parameters of model"),
        ({"groups": 3}, "groups must be 'layer' or a dict"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            measure(model, loss, given, **options)
    with pytest.raises(ValueError, match=r"torch\.nn\.Module"):
        measure(loss, loss, given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tensor with one element"):
        measure(model, lambda model, batch: model(batch[0]), given)
    with pytest.raises(ValueError, match="does not depend"):
        measure(model, lambda model, batch: torch.ones(()), given)
    with pytest.raises(ValueError, match="The loss at these weights is nan"):
        measure(model, lambda model, batch: loss(model, batch) * float("nan"), given)
    with pytest.raises(ValueError, match="vector product is not finite"):  # curvature of a root at zero
        measure(nn.Linear(2, 1), lambda model, batch: (model.weight * 0).abs().pow(1.5).sum(), [torch.ones(1)])
    with pytest.raises(ValueError, match=r"copy\.deepcopy\(model\)\.float\(\)"):
        measure(net().bfloat16(), loss, given)
    with pytest.raises(ValueError, match="no trainable parameters"):
        measure(net().requires_grad_(False), loss, given)
