"""Slices through the loss."""

from typing import Any

import pytest
import torch
from torch import nn

from curved_net import batches, dense, loss, net
from vsam.sharpness import landscape


def test_a_plane_goes_through_the_weights_and_its_middle_row_is_the_line() -> None:
    model, given = net(), batches()
    line = landscape(model, loss, given, num_points=5)
    plane = landscape(model, loss, given, dimensions=2, num_points=5)
    assert line.axes[0].tolist() == [-1, -0.5, 0, 0.5, 1]
    assert plane.losses.shape == (5, 5)
    assert len(plane.axes) == 2
    assert line.losses[2].item() == pytest.approx(dense(model, given)[0], rel=1e-12)
    torch.testing.assert_close(plane.losses[:, 2], line.losses)
    assert not torch.allclose(plane.losses[2], line.losses)
    assert torch.equal(landscape(model, loss, given, num_points=5).losses, line.losses)
    assert not torch.equal(landscape(model, loss, given, num_points=5, seed=1).losses, line.losses)


def test_directions_are_scaled_filter_by_filter_and_leave_biases_alone() -> None:
    model, seen = net(), []
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def note(model: nn.Module, batch: Any) -> torch.Tensor:
        seen.append({name: value - start[name] for name, value in model.state_dict().items()})
        return loss(model, batch)

    landscape(model, note, batches()[:1], num_points=2)
    for name, moved in seen[-1].items():
        if name.endswith("bias"):
            assert moved.abs().max() == 0
        else:
            torch.testing.assert_close(moved.norm(dim=1), start[name].norm(dim=1))


def test_rescaled_networks_have_the_same_landscape() -> None:
    """Filter normalisation's purpose: scale that batch normalisation takes away must not look like flatness."""
    given = batches()

    def normalised(scale: float) -> torch.Tensor:
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(6, eps=1e-12)
        model = nn.Sequential(nn.Linear(4, 6, bias=False), norm, nn.Tanh(), nn.Linear(6, 3)).double()
        model[0].weight.data *= scale
        return landscape(model, loss, given, num_points=5, mode="train").losses

    torch.testing.assert_close(normalised(1.0), normalised(50.0))


def test_the_line_to_a_checkpoint_begins_here_and_ends_there() -> None:
    def network(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()

    model, other, given = network(0), network(1), batches()
    other(10 * given[0][0])  # statistics of its own
    model[0].requires_grad_(False)
    state = {f"module._orig_mod.{name}": value for name, value in other.state_dict().items()}  # as wrappers save it
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = landscape(model, loss, given, to=state, num_points=3)
    ends = [dense(one.eval(), given)[0] for one in (model, other)]
    assert found.losses[[0, 2]].tolist() == pytest.approx(ends, rel=1e-12)
    assert found.losses[1].item() not in ends
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    wide = landscape(model, loss, given, to=state, num_points=3, span=(-1, 1))
    assert wide.losses[1:].tolist() == pytest.approx(ends, rel=1e-12)


def test_what_cannot_be_is_explained() -> None:
    model, given = net(), batches()
    with pytest.raises(ValueError, match=r"0\.weight of shape \(5, 4\), got none.*checkpoint\['model'\]"):
        landscape(model, loss, given, to={"model": net().state_dict()})
    with pytest.raises(ValueError, match=r"got \(2, 4\)"):
        landscape(model, loss, given, to={**net().state_dict(), "0.weight": torch.ones(2, 4)})
    with pytest.raises(ValueError, match="one dimension"):
        landscape(model, loss, given, to=net().state_dict(), dimensions=2)
    with pytest.raises(ValueError, match="a line or a plane"):
        landscape(model, loss, given, dimensions=3)
    with pytest.raises(ValueError, match="two ends"):
        landscape(model, loss, given, num_points=1)


@pytest.mark.parametrize("options", [{"dimensions": 2, "num_points": 3}, {"to": True, "num_points": 5}])
def test_a_grid_goes_on_where_it_was_stopped(options: dict[str, Any]) -> None:
    given, calls = batches()[:1], []
    options = options | ({"to": net(1).state_dict()} if "to" in options else {})

    def counted(model: nn.Module, batch: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return loss(model, batch)

    known: dict[tuple[int, ...], float] = {}
    with pytest.raises(KeyboardInterrupt):
        landscape(net(), counted, given, known=known, **options)
    assert len(known) == 3
    found = landscape(net(), counted, given, known=known, **options)
    whole = landscape(net(), loss, given, **options)
    assert torch.equal(found.losses, whole.losses)
    assert len(calls) == whole.losses.numel() + 1  # the one that was interrupted is computed again, no other
    assert len(known) == whole.losses.numel()
