"""`only="norm"` moves the parameters of normalisation layers alone, with their norm. The update uses all."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vsam


class LlamaRMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))


class NormalisedLinear(nn.Linear):
    pass


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.LayerNorm(6)).double()


def _closure(model: nn.Module, seen: list[list[Tensor]]) -> Callable[[], Tensor]:
    inputs = torch.randn(8, 5, generator=torch.Generator().manual_seed(1)).double()

    def closure() -> Tensor:
        loss = model(inputs).pow(4).mean()
        loss.backward()
        seen.append([*(p.detach().clone() for p in model.parameters()), *(p.grad for p in model.parameters())])
        return loss

    return closure


PARTS: dict[str, vsam.Where] = {
    name: getattr(vsam, name)(0.1, only="norm", **({"beta": 1.0} if name == "RandomSubset" else {}))
    for name in vsam.where.__all__
    if name
    not in ("AdaptiveMomentum", "Momentum", "PartOfBatch")  # whose offsets are not along the gradient of the batch
}


@pytest.mark.parametrize("name", PARTS)
def test_only_normalisation_layers_move_and_all_are_updated(name: str) -> None:
    model, seen = _model(), []
    optimizer = vsam.SharpnessAware(torch.optim.SGD(model.parameters(), lr=0.1), model=model, where=PARTS[name])
    optimizer.step(_closure(model, seen))
    n = len(list(model.parameters()))
    (first, second), are_norm = seen, [2, 3, 6, 7]
    gradients = [first[n + i] for i in are_norm]
    length = torch.stack([g.norm() for g in gradients]).norm()
    for i in range(n):
        offset = second[i] - first[i]
        expected = 0.1 * first[n + i] / length if i in are_norm else torch.zeros_like(offset)
        torch.testing.assert_close(offset, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(list(model.parameters())[i].detach(), first[i] - 0.1 * second[n + i])


def test_layers_are_known_by_their_class() -> None:
    model = nn.Sequential(nn.GroupNorm(2, 4), LlamaRMSNorm(), NormalisedLinear(2, 2), nn.BatchNorm2d(3, affine=False))
    seen = []

    def closure() -> None:
        seen.append([parameter.detach().clone() for parameter in model.parameters()])
        sum((parameter + 1).square().sum() for parameter in model.parameters()).backward()

    vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, only="norm").step(closure)
    are_moved = [not torch.equal(first, second) for first, second in zip(*seen, strict=True)]
    assert are_moved == [True, True, True, False, False]  # the first two layers' parameters


def test_a_network_is_needed_and_must_have_such_layers() -> None:
    model = nn.Linear(2, 2)
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="pass model=model"):
        vsam.SAM(base, only="norm")
    with pytest.raises(ValueError, match="Linear has none with parameters"):
        vsam.SAM(base, model=model, only="norm")
    with pytest.raises(ValueError, match="base trains none of them"):
        vsam.SAM(base, model=nn.Sequential(model, nn.LayerNorm(2)), only="norm")
    with pytest.raises(ValueError, match="only must be 'norm'"):
        vsam.SAM(base, model=model, only="bias")  # type: ignore[arg-type]


def test_it_is_said() -> None:
    model = _model()
    words = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, only="norm").describe()
    assert "normalisation layers" in words
    assert "Published as SAM-ON (Mueller et al., NeurIPS 2023)" in words
    assert repr(vsam.GlobalNorm(0.1)) == "GlobalNorm(rho=0.1)"
