"""ESAM: the samples that became worse, the three calls of its losses, and what it reduces to."""

import copy
import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vsam

INPUTS = torch.randn(40, 12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(3, (40, 12), generator=torch.Generator().manual_seed(1))


def smooth() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def noisy() -> nn.Sequential:
    torch.manual_seed(2)
    layers = (nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Dropout(0.3), nn.Linear(7, 3))
    return nn.Sequential(*layers).double()


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


class Losses:
    """Per-sample losses that record their calls, and raise at the call of a given number."""

    def __init__(self, model: nn.Module, number: int, fails_at: int | None = None) -> None:
        self.model, self.number, self.fails_at = model, number, fails_at
        self.keeps: list[Tensor | None] = []
        self.with_gradient: list[bool] = []

    def __call__(self, keep: Tensor | None = None) -> Tensor:
        self.keeps.append(keep)
        self.with_gradient.append(torch.is_grad_enabled())
        if len(self.keeps) == self.fails_at:
            raise KeyError("no data")
        inputs, labels = INPUTS[self.number], LABELS[self.number]
        if keep is not None:
            inputs, labels = inputs[keep], labels[keep]
        return functional.cross_entropy(self.model(inputs), labels, reduction="none")


def test_esam_follows_its_slow_twin() -> None:
    model, beta, gamma, rho = smooth(), 0.6, 0.4, 0.1
    optimizer = vsam.ESAM(momentum(model), model=model, rho=rho, beta=beta, gamma=gamma, seed=5)
    twin, draws = smooth(), random.Random(5)
    velocity = [torch.zeros_like(p) for p in twin.parameters()]
    for number in range(40):
        optimizer.step(Losses(model, number))
        weights = [p.detach().clone() for p in twin.parameters()]
        before = Losses(twin, number)()
        plain = torch.autograd.grad(before.mean(), list(twin.parameters()))
        kept = [draws.random() < beta for _ in plain]
        if not any(kept):
            kept[draws.randrange(len(kept))] = True
        norm = sum(float((g**2).sum()) for g, keep in zip(plain, kept, strict=True) if keep) ** 0.5
        with torch.no_grad():
            for p, g, keep in zip(twin.parameters(), plain, kept, strict=True):
                if keep:
                    p += rho / (norm + 1e-12) / beta * g
            increase = Losses(twin, number)() - before
        worst = sorted(sorted(range(12), key=lambda i: -float(increase[i]))[: int(gamma * 12)])
        sharp = torch.autograd.grad(Losses(twin, number)(torch.tensor(worst)).mean(), list(twin.parameters()))
        with torch.no_grad():
            for p, w, v, g in zip(twin.parameters(), weights, velocity, sharp, strict=True):
                v.mul_(0.9).add_(g + 1e-3 * w)
                p.copy_(w - 0.1 * v)
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_losses_run_with_gradient_without_and_on_the_subset_in_order() -> None:
    model = smooth()
    optimizer = vsam.ESAM(momentum(model), model=model, gamma=0.5)
    losses = Losses(model, 0)
    returned = optimizer.step(losses)
    assert losses.with_gradient == [True, False, True]
    assert losses.keeps[:2] == [None, None]
    keep = losses.keeps[2]
    assert keep is not None
    assert len(keep) == 6
    assert keep.tolist() == sorted(set(keep.tolist()))
    assert torch.equal(returned, Losses(smooth(), 0)().mean())


def test_at_least_one_sample_is_kept() -> None:
    model = smooth()
    losses = Losses(model, 0)
    vsam.ESAM(momentum(model), gamma=0.01).step(losses)
    assert losses.keeps[2] is not None
    assert len(losses.keeps[2]) == 1


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_without_selection_it_is_sam_on_the_same_tensors_bit_for_bit(beta: float) -> None:
    model, other = noisy(), noisy()
    esam = vsam.ESAM(momentum(model), model=model, rho=0.1, beta=beta, gamma=1.0, seed=4)
    where = vsam.GlobalNorm(0.1) if beta == 1 else vsam.RandomSubset(0.1, beta, seed=4)
    sam = vsam.SharpnessAware(momentum(other), model=other, where=where)
    for number in range(40):
        torch.manual_seed(number)
        losses = Losses(model, number)
        esam.step(losses)
        assert len(losses.keeps) == 2
        torch.manual_seed(number)

        def closure(number: int = number) -> Tensor:
            loss = Losses(other, number)().mean()
            loss.backward()
            return loss

        sam.step(closure)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_without_a_radius_it_is_the_base_optimizer() -> None:
    model, other = noisy(), noisy()
    optimizer, base = vsam.ESAM(momentum(model), model=model, rho=0.0), momentum(other)
    for number in range(20):
        torch.manual_seed(number)
        optimizer.step(Losses(model, number))
        torch.manual_seed(number)
        base.zero_grad()
        Losses(other, number)().mean().backward()
        base.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_after_an_exception_everything_is_as_before(fails_at: int) -> None:
    model = noisy()
    optimizer = vsam.ESAM(momentum(model), model=model)
    for number in range(5):
        optimizer.step(Losses(model, number))
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    generator = torch.get_rng_state()
    with pytest.raises(KeyError, match="no data"):
        optimizer.step(Losses(model, 5, fails_at))
    assert torch.equal(generator, torch.get_rng_state())
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name]), name
    assert optimizer.state_dict()["sharpness"] == state["sharpness"]
    assert optimizer.num_samples == 5


def test_resume_and_copies_continue_bit_for_bit(tmp_path) -> None:
    model = smooth()
    optimizer = vsam.ESAM(momentum(model), model=model, gamma=0.3, seed=8)
    for number in range(7):
        optimizer.step(Losses(model, number))
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "run.pt")
    weights, state = torch.load(tmp_path / "run.pt", weights_only=True)
    loaded = smooth()
    loaded.load_state_dict(weights)
    resumed = vsam.ESAM(momentum(loaded), model=loaded, gamma=0.3, seed=0)
    resumed.load_state_dict(state)
    copied, copied_optimizer = copy.deepcopy((model, optimizer))
    for number in range(7, 20):
        optimizer.step(Losses(model, number))
        resumed.step(Losses(loaded, number))
        copied_optimizer.step(Losses(copied, number))
    for ours, theirs, third in zip(model.parameters(), loaded.parameters(), copied.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(ours, third)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (
            lambda keep=None: torch.tensor(1.0, requires_grad=True),
            "vector with one loss per sample, got a tensor of shape",
        ),
        (lambda keep=None: None, "vector with one loss per sample, got NoneType"),
        (lambda keep=None: torch.zeros(0, requires_grad=True), r"got a tensor of shape \(0,\)"),
        (torch.zeros(3), "losses must be a function, got Tensor"),
    ],
)
def test_losses_of_another_form_are_refused(losses, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vsam.ESAM(momentum(smooth())).step(losses)


def test_losses_of_other_samples_than_those_asked_for_are_refused() -> None:
    """A function that ignores `keep` would train on all samples in silence."""
    model = smooth()
    losses, weights = Losses(model, 0), copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="for each of the 6 requested samples, got 12"):
        vsam.ESAM(momentum(model)).step(lambda keep=None: losses())
    sizes = iter([12, 11])
    with pytest.raises(ValueError, match="for each of the 12 requested samples, got 11"):
        vsam.ESAM(momentum(model)).step(lambda keep=None: losses()[: next(sizes)])
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name]), name


@pytest.mark.parametrize("way", ["radius", "group", "late group"])
def test_where_nothing_moves_all_samples_are_kept(way: str) -> None:
    model = smooth()
    layers = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters())}]
    base = torch.optim.SGD([{**layers[0], "rho": 0.0}] if way == "late group" else layers, lr=0.1)
    optimizer = vsam.ESAM(base, rho=0.1 if way == "group" else 0.0)
    if way == "group":
        for group in base.param_groups:
            group["perturb"] = False
    elif way == "late group":
        base.add_param_group(layers[1])  # names no radius
    losses = Losses(model, 0)
    optimizer.step(losses)
    assert [None if keep is None else len(keep) for keep in losses.keeps] == [None, 12]


def test_the_defaults_are_the_published_ones() -> None:
    optimizer = vsam.ESAM(momentum(smooth()))
    assert optimizer.where.settings() == vsam.RandomSubset().settings() == {"rho": 0.05, "beta": 0.6, "seed": 0}
    assert optimizer.gamma == 0.5


def test_the_other_calling_styles_say_what_to_do() -> None:
    optimizer = vsam.ESAM(momentum(smooth()))
    with pytest.raises(RuntimeError, match=r"losses\(keep=None\)"):
        optimizer.step()
    with pytest.raises(RuntimeError, match=r"call step\(losses\)"):
        optimizer.perturb()


def test_describe_names_the_paper_and_the_share() -> None:
    assert "Published as ESAM (Du et al., ICLR 2022)" in vsam.ESAM(momentum(smooth())).describe()
    assert "50% of the samples" in vsam.ESAM(momentum(smooth())).describe()
    mixture = vsam.SharpnessAware(momentum(smooth()), when=vsam.Variation(), where=vsam.RandomSubset())
    assert "experimental" in mixture.describe()
