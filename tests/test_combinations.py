"""Parts, losses and quantized networks in combination: they follow their twins, train, and resume exactly."""

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oracles
import vsam
from contract_table import assert_same, network
from oracles import flat, flat_batches, flat_gradient, smooth_network
from trajectory.training import INPUTS, LABELS, LENGTH, Training
from vsam import (
    AdaptiveNorm,
    Always,
    Decayed,
    Every,
    GlobalNorm,
    GradientThreshold,
    Orthogonal,
    Plain,
    RandomSubset,
    ReleasedVariation,
    Variation,
)
from vsam.quantize import parameter_groups, quantize

RULE: dict[str, Any] = {"alpha": 0.5, "window": 6, "slices": 3, "start": 12, "initial_samples": 2}
WHEN: dict[str, vsam.When] = {
    "always": Always(),
    "every": Every(5),
    "threshold": GradientThreshold(LENGTH),
    "variation": Variation(watch=3, **RULE),
    "released": ReleasedVariation(**RULE),
}
WHERE: dict[str, vsam.Where] = {
    "global": GlobalNorm(),
    "adaptive": AdaptiveNorm(),
    "subset": RandomSubset(beta=0.5, seed=7),
}
BETWEEN: dict[str, vsam.Between] = {
    "plain": Plain(),
    "decayed": Decayed(0.7),
    "stopping": Decayed(0.7, floor=0.7**6),
    "orthogonal": Orthogonal(),
}
every_mixture = pytest.mark.parametrize(("when", "where", "between"), [*itertools.product(WHEN, WHERE, BETWEEN)])


def _mixture(when: str, where: str, between: str) -> Callable[[nn.Module, Any], vsam.SharpnessAware]:
    def make(model: nn.Module, parameters: Any) -> vsam.SharpnessAware:
        base = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        parts = {"when": WHEN[when], "where": WHERE[where], "between": BETWEEN[between]}
        return vsam.SharpnessAware(base, model=model, **parts)  # type: ignore[arg-type]

    return make


@every_mixture
def test_every_mixture_resumes_bit_for_bit(when: str, where: str, between: str) -> None:
    """All generators of parts included: they are in the state."""
    make = _mixture(when, where, between)
    straight = Training(optimizer=make).go(last=15)
    saved = straight.save()
    expected = straight.go(first=15).everything()
    assert_same(Training(optimizer=make).load(saved).go(first=15).everything(), expected)


class _SubsetVSAM(oracles.VSAM):
    """The twin of vSAM that climbs along a random part of the tensors."""

    def __init__(self, *args: Any, sizes: list[int], beta: float, subset_seed: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sizes, self.beta, self.subset_draws = sizes, beta, random.Random(subset_seed)

    def sharp(self, w: Tensor, g: Tensor, gradient: oracles.Gradient) -> Tensor:
        kept = [self.subset_draws.random() < self.beta for _ in self.sizes]
        if not any(kept):
            kept[self.subset_draws.randrange(len(kept))] = True
        kept_gradient = g * torch.repeat_interleave(torch.tensor(kept), torch.tensor(self.sizes))
        return gradient(w + self.rho / (kept_gradient.norm() + 1e-12) / self.beta * kept_gradient)


def _subset_vsam(model: nn.Module, beta: float, lr: float = 0.05, **rule: Any) -> vsam.SharpnessAware:
    base = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    where = RandomSubset(0.1, beta, seed=7)
    return vsam.SharpnessAware(base, model=model, when=Variation(**rule), where=where, between=Decayed(0.8))


def _closure(model: nn.Module, inputs: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    return closure


SMOOTH_LAW: dict[str, Any] = {"alpha": 0.4, "window": 20, "slices": 5, "start": 47, "seed": 3}


def test_a_subset_under_sampling_follows_its_twin() -> None:
    model = smooth_network(seed=1)
    optimizer = _subset_vsam(model, beta=0.5, watch=2, **SMOOTH_LAW)
    sizes = [parameter.numel() for parameter in model.parameters()]
    subset = {"sizes": sizes, "beta": 0.5, "subset_seed": 7}
    twin = _SubsetVSAM(oracles.SGD(0.05, 0.9), 0.1, gamma=0.8, watched=36, **subset, **SMOOTH_LAW)
    w = flat(model)
    for inputs, labels in flat_batches(seed=5, count=200):
        w = twin.step(w, lambda at, x=inputs, y=labels: flat_gradient(at, x, y))
        optimizer.step(_closure(model, inputs, labels))
        torch.testing.assert_close(flat(model), w, rtol=0, atol=1e-10)
    assert 47 < optimizer.num_samples == sum(twin.sampled) < 200


def test_a_subset_of_all_under_sampling_is_vsam_bit_for_bit() -> None:
    model, other = smooth_network(seed=1), smooth_network(seed=1)
    mixture = _subset_vsam(model, beta=1.0, watch=2, **SMOOTH_LAW)
    base = torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.9)
    named = vsam.VSAM(base, model=other, rho=0.1, gamma=0.8, watch=2, **SMOOTH_LAW)
    for inputs, labels in flat_batches(seed=5, count=200):
        mixture.step(_closure(model, inputs, labels))
        named.step(_closure(other, inputs, labels))
    assert torch.equal(flat(model), flat(other))
    assert mixture.num_samples == named.num_samples


def test_a_subset_under_sampling_leaves_what_is_frozen() -> None:
    model = smooth_network(seed=1)
    model[2].requires_grad_(False)
    frozen, seen = copy.deepcopy(model[2].state_dict()), []
    optimizer = _subset_vsam(model, beta=0.3, watch=2, **SMOOTH_LAW)
    model.register_forward_hook(lambda *_: seen.append(copy.deepcopy(model[2].state_dict())))
    for inputs, labels in flat_batches(seed=5, count=100):
        optimizer.step(_closure(model, inputs, labels))
        assert not any(parameter.requires_grad for parameter in model[2].parameters())
    assert len(seen) > 147
    for state in seen:
        assert_same(state, frozen)


def test_a_failed_step_costs_neither_generator_a_draw() -> None:
    make = _mixture("variation", "subset", "decayed")
    expected, run = Training(optimizer=make).go().everything(), Training(optimizer=make)
    for number in range(LENGTH):
        before = run.save()
        handle = run.optimizer.base.register_step_pre_hook(_refuse)
        states = copy.deepcopy(run.optimizer.state_dict()["sharpness"])
        with pytest.raises(KeyError):
            run.step(number)
        handle.remove()
        assert_same(run.optimizer.state_dict()["sharpness"], states)
        run.load(before).step(number)
    assert_same(run.everything(), expected)


def _refuse(*_: object) -> None:
    raise KeyError


@pytest.mark.parametrize("optimizer", ["momentum", "adamw", "fused", "sam", "vsam", "vsam-fused", "looksam-5-lion"])
@pytest.mark.parametrize("kind", ["plain", "saf", "mesa"])
@pytest.mark.parametrize("is_quantized", [False, True])
def test_losses_networks_and_optimizers_in_any_combination(kind: str, optimizer: str, is_quantized: bool) -> None:
    """They learn, and a run saved under way goes on bit for bit."""

    def run() -> Training:
        model = quantize(network(), first_last_bits=4) if is_quantized else network()
        return Training(kind, optimizer, model, parameter_groups(model) if is_quantized else None)

    straight = run()
    before = nn.functional.cross_entropy(straight.model(INPUTS), LABELS)
    straight = run().go(last=14)
    saved = straight.save()
    expected = straight.go(first=14).everything()
    assert nn.functional.cross_entropy(straight.model(INPUTS), LABELS) < before
    assert_same(run().load(saved).go(first=14).everything(), expected)
