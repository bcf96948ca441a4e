"""BatchNorm on parts of a batch in several processes equals BatchNorm on the whole of it in one."""

import pytest
import torch
from torch import nn

from lab.ranks.launch import on_ranks
from vsam.lab.errors import UserError
from vsam.lab.ranks.batch_norm import SyncedBatchNorm, synchronise

CPU = torch.device("cpu")
LAYERS = {
    "images": (lambda: nn.BatchNorm2d(3), (5, 3, 4, 4)),
    "vectors": (lambda: nn.BatchNorm1d(3, momentum=None), (5, 3)),
    "plain": (lambda: nn.BatchNorm2d(3, affine=False, track_running_stats=False), (5, 3, 2, 2)),
}
# Places where the batch is cut: uneven, and so that one process has nothing.
CUTS = (2, 0)


def _pass(layer, inputs, weights):
    """Two training passes, then an evaluation: outputs, gradients, statistics."""
    inputs = inputs.clone().requires_grad_()
    outputs = [layer(inputs), layer(2 * inputs + 1)]
    (weights * (outputs[0] ** 2 + outputs[1] ** 3)).sum().backward()
    layer.eval()
    gradients = [parameter.grad for parameter in layer.parameters()]
    return [*outputs, inputs.grad], gradients, [*layer.buffers(), *layer(inputs)] if layer.track_running_stats else []


def _problem(kind):
    make, shape = LAYERS[kind]
    generator = torch.Generator().manual_seed(0)
    inputs, weights = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return make().double(), 100 + inputs, weights


def _parts(ranks):
    found = {}
    for kind in LAYERS:
        for cut in CUTS:
            layer, inputs, weights = _problem(kind)
            own = slice(0, cut) if ranks.is_first else slice(cut, 5)
            outputs, gradients, statistics = _pass(synchronise(layer, CPU), inputs[own], weights[own])
            found[f"{kind} {cut}"] = [[value.detach() for value in part] for part in (outputs, gradients, statistics)]
    layer = synchronise(nn.BatchNorm2d(3), CPU)
    found["half"] = layer(torch.randn(2, 3, 4, 4).bfloat16()).dtype == torch.bfloat16
    return found


@pytest.mark.slow
def test_parts_are_normalised_as_the_whole(tmp_path):
    first, second = on_ranks(2, _parts, tmp_path)
    assert first.pop("half")
    assert second.pop("half")
    for name in first:
        layer, inputs, weights = _problem(name.split()[0])
        outputs, gradients, statistics = _pass(layer, inputs, weights)
        for whole, one, other in zip(outputs, first[name][0], second[name][0], strict=True):
            assert torch.allclose(torch.cat([one, other]), whole, rtol=1e-9, atol=1e-9)
        for whole, one, other in zip(gradients, first[name][1], second[name][1], strict=True):
            assert torch.allclose(one + other, whole, rtol=1e-9, atol=1e-9)
        num_buffers = len(list(layer.buffers()))
        for whole, one, other in zip(statistics[:num_buffers], first[name][2], second[name][2], strict=False):
            assert torch.equal(one, other)
            assert torch.allclose(one, whole, rtol=1e-12)


def test_names_parameters_and_buffers_stay(tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GroupNorm(1, 2))
    before = dict(model.named_parameters())
    names = list(model.state_dict())
    synchronise(model, CPU)
    assert type(model[1]) is SyncedBatchNorm
    assert type(model[2]) is nn.GroupNorm
    assert list(model.state_dict()) == names
    assert all(parameter is before[name] for name, parameter in model.named_parameters())


def test_a_layer_of_another_kind_is_refused_by_name():
    class Mine(nn.BatchNorm2d):
        pass

    with pytest.raises(UserError, match="Layer '1' is a Mine, which would use the statistics"):
        synchronise(nn.Sequential(nn.Flatten(), Mine(3)), CPU)
