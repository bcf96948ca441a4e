"""A gradient at a point that is known before the only pass: one pass, and all the other promises."""

import copy

import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import (
    BATCHES,
    LENGTH,
    assert_same,
    generators,
    losses_of,
    network,
    seed_everything,
    set_generators,
    through_a_file,
    trained_by_base_alone,
)
from vsam import AdaptiveMomentum, Always, Decayed, Displaced, Every, GlobalNorm, GradientThreshold, Momentum, Variation

MIXTURES = {
    "msam": {"where": Momentum(0.3)},
    "adaptive": {"where": AdaptiveMomentum(0.3)},
    "climbing": {"where": Momentum(0.1, sign=1), "when": Every(3)},
    "displaced": {"when": Every(4), "between": Displaced(Momentum(0.1, sign=1))},
}
BASES = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}
every_mixture = pytest.mark.parametrize("name", MIXTURES)
every_base = pytest.mark.parametrize("base", BASES)


class _Failure(Exception):
    pass


class _Run:
    def __init__(self, name: str, base: str = "momentum", **parts: object) -> None:
        seed_everything(3)
        self.model = network()
        settings = {**MIXTURES[name], **parts}
        self.optimizer = vsam.SharpnessAware(BASES[base](self.model.parameters()), model=self.model, **settings)  # type: ignore[arg-type]
        self.seen: list[list[Tensor]] = []
        self.records: list[vsam.StepRecord] = []

    def closure(self, number: int, error: type[Exception] | None = None, scale: float = 1.0):
        def closure() -> Tensor:
            self.seen.append(self.weights())
            loss = losses_of(self.model, number).mean()
            (scale * loss).backward()
            if error is not None:
                raise error
            return loss

        return closure

    def go(self, first: int = 0, last: int = LENGTH) -> "_Run":
        for number in range(first, last):
            self.optimizer.step(self.closure(number))
            assert self.optimizer.last is not None
            self.records.append(self.optimizer.last)
        return self

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def everything(self) -> dict[str, object]:
        model, optimizer = copy.deepcopy(self.model.state_dict()), copy.deepcopy(self.optimizer.state_dict())
        return {"model": model, "optimizer": optimizer, "generators": generators()}


@every_mixture
@every_base
def test_one_pass_away_from_the_weights_and_the_record_says_so(name: str, base: str) -> None:
    run = _Run(name, base)
    for number in range(12):
        before, num_passes = run.weights(), len(run.seen)
        run.go(number, number + 1)
        record = run.records[-1]
        assert len(run.seen) - num_passes == 1 + record.sampled
        is_away = any(not torch.equal(p, w) for p, w in zip(run.seen[num_passes], before, strict=True))
        assert record.displaced == is_away
    displaced = [record.displaced for record in run.records]
    expected = {name: [n > 0 for n in range(12)] for name in ("msam", "adaptive")}
    expected |= {"climbing": [n % 3 == 0 and n > 0 for n in range(12)]}
    assert displaced == expected.get(name, [n % 4 != 0 for n in range(12)])
    assert run.optimizer.num_samples == (3 if name == "displaced" else 0)
    assert run.optimizer.cost == 1 + run.optimizer.num_samples / 12 == run.optimizer.expected_cost


@every_mixture
def test_a_failed_pass_has_not_happened(name: str) -> None:
    straight, run = _Run(name).go().everything(), _Run(name)
    for number in range(LENGTH):
        before = run.everything()
        with pytest.raises(_Failure):
            run.optimizer.step(run.closure(number, _Failure))
        assert_same(run.everything(), before)
        run.go(number, number + 1)
    assert_same(run.everything(), straight)


@every_mixture
@every_base
def test_resumes_bit_for_bit(name: str, base: str) -> None:
    straight, other = _Run(name, base).go(last=10), _Run(name, base)
    saved = straight.everything()
    expected = straight.go(first=10).everything()
    other.model.load_state_dict(saved["model"])  # type: ignore[arg-type]
    other.optimizer.load_state_dict(through_a_file(saved["optimizer"]))  # type: ignore[arg-type]
    set_generators(saved["generators"])  # type: ignore[arg-type]
    assert_same(other.go(first=10).everything(), expected)


@every_base
def test_zero_radius_is_the_base_with_its_statistics(base: str) -> None:
    run = _Run("msam", base, where=Momentum(0.0)).go()
    model = trained_by_base_alone(BASES[base])
    assert all(torch.equal(one, other) for one, other in zip(run.weights(), model.parameters(), strict=True))
    for one, other in zip(run.model.buffers(), model.buffers(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("base", ["momentum", "fused"])
def test_a_gradient_that_is_not_finite_skips_the_step(base: str) -> None:
    run = _Run("msam", base).go(last=4)
    before = run.weights()
    with pytest.warns(RuntimeWarning, match="not finite"):
        _ = run.optimizer.step(run.closure(4, scale=float("inf"))), run.optimizer.num_skipped
    assert run.optimizer.num_skipped == 1
    assert_same(run.weights(), before)


def test_statistics_are_those_of_the_only_pass_and_it_is_no_second_one() -> None:
    run, told = _Run("msam").go(last=2), []
    tracked = int(run.model[2].num_batches_tracked)
    closure = run.closure(2)
    run.optimizer.step(lambda: (told.append(run.optimizer.is_second_pass), closure())[1])
    assert int(run.model[2].num_batches_tracked) == tracked + 1
    assert told == [False]
    assert run.optimizer.will_sample is False


def test_frozen_and_left_out_parameters_do_not_move() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "perturb": False}]
    optimizer = vsam.MSAM(torch.optim.SGD(groups, lr=0.1, momentum=0.9), rho=0.5)
    seen: list[list[Tensor]] = []

    def closure() -> Tensor:
        seen.append([p.detach().clone() for p in model.parameters()])
        loss = nn.functional.cross_entropy(model(BATCHES[0][0]), BATCHES[0][1])
        loss.backward()
        return loss

    optimizer.step(closure)
    model[0].bias.requires_grad_(False)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step(closure)
    moved = [not torch.equal(one, other) for one, other in zip(seen[-1], before, strict=True)]
    assert moved == [True, False, False, False]
    assert float((seen[-1][0] - before[0]).norm()) == pytest.approx(0.5, rel=1e-5)


@every_mixture
def test_a_loop_without_a_closure_is_told_what_to_write(name: str) -> None:
    run = _Run(name)
    losses_of(run.model, 0).mean().backward()
    with pytest.raises(RuntimeError, match=r"(?s)too late.*optimizer.step\(closure\)"):
        run.optimizer.perturb()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"when": GradientThreshold(9)}, "decides after the first gradient"),
        ({"when": Variation()}, "needs the PSF"),
        ({"between": Decayed(0.5)}, "needs the PSF"),
    ],
)
def test_parts_that_cannot_work_together_are_refused(parts: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _Run("msam", **parts)


def test_what_knows_no_offset_or_has_no_momentum_is_refused() -> None:
    with pytest.raises(ValueError, match="must know its offset before"):
        Displaced(GlobalNorm())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sign must be"):
        Momentum(sign=0)
    with pytest.raises(ValueError, match=r"momentum=0\.9"):
        vsam.MSAM(torch.optim.SGD(network().parameters(), lr=0.1))
    with pytest.raises(ValueError, match="decides after"):
        _Run("displaced", when=GradientThreshold(9))
    assert (
        _Run("msam", when=Always()).optimizer.describe().count("Published as MSAM (Becker et al., NeurIPS 2025)") == 1
    )
    assert "experimental" in _Run("climbing", when=Always()).optimizer.describe()


def test_a_step_with_nothing_to_move_along_yet_is_plain() -> None:
    """For example because only frozen layers have trained so far, or because the state was cleared."""
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    optimizer = vsam.MSAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rho=0.5)

    def is_displaced() -> bool:
        optimizer.step(closure)
        assert optimizer.last is not None
        return optimizer.last.displaced

    def closure() -> Tensor:
        loss = nn.functional.cross_entropy(model(BATCHES[0][0]), BATCHES[0][1])
        loss.backward()
        return loss

    model[0].requires_grad_(False)
    assert [is_displaced(), is_displaced()] == [False, True]
    model[0].requires_grad_(True)
    model[1].requires_grad_(False)
    assert [is_displaced(), is_displaced()] == [False, True]
    optimizer.base.state.clear()
    assert [is_displaced(), is_displaced()] == [False, True]


class _Renamed(torch.optim.SGD):
    """Keeps its momentum under a name that nobody knows."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        for state in self.state.values():
            state["mu"] = state.pop("momentum_buffer")


def test_a_base_whose_momentum_is_not_found_is_refused() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = vsam.MSAM(_Renamed([weight], lr=0.1, momentum=0.9))
    optimizer.step(lambda: weight.square().sum().backward())
    with pytest.raises(RuntimeError, match="finds no direction in the state of _Renamed"):
        optimizer.step(lambda: weight.square().sum().backward())


class _Noting(Every):
    """Notes what it is told of each step."""

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.told: list[bool] = []

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        self.told.append(was_sampled)


def test_a_rule_is_told_of_the_steps_at_its_offset() -> None:
    """The rule sees them as the sampled steps. Steps that `Displaced` displaces do not count."""
    run = _Run("climbing", when=_Noting(3))
    other = _Run("displaced", when=_Noting(3))
    for number in range(6):
        run.optimizer.step(run.closure(number))
        other.optimizer.step(other.closure(number))
    assert run.optimizer.when.told == [False, False, False, True, False, False]
    assert other.optimizer.when.told == [True, False, False, True, False, False]
    assert (run.optimizer.num_samples, other.optimizer.num_samples) == (0, 2)


@pytest.mark.parametrize("is_adaptive", [False, True])
def test_maximizing_the_negative_is_minimizing(is_adaptive: bool) -> None:
    trained = []
    for sign in (1.0, -1.0):
        weight = torch.nn.Parameter(torch.tensor([[0.5, -1.0], [2.0, 0.3]], dtype=torch.float64))
        base = torch.optim.SGD([weight], lr=0.1, momentum=0.9, maximize=sign < 0)
        optimizer = vsam.MSAM(base, rho=0.4, adaptive=is_adaptive)

        def closure(weight: torch.nn.Parameter = weight, sign: float = sign) -> torch.Tensor:
            loss = sign * weight.pow(4).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for _ in range(5):
            optimizer.step(closure)
        trained.append(weight.detach())
    torch.testing.assert_close(*trained, rtol=1e-12, atol=0)
