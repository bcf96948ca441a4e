"""The direction from a part of the batch: a small pass that leaves no trace, and all the other promises."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import oracles
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
from vsam import Decayed, Displaced, Every, GradientThreshold, PartOfBatch, Variation

SHARE = 0.25
BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}
every_base = pytest.mark.parametrize("base", BASES)


class _Failure(Exception):
    pass


class _Run:
    """A network in training. `passes` has the fraction, the weights and `is_second_pass` of each pass."""

    def __init__(self, base: str = "momentum", rho: float = 0.1, **parts: object) -> None:
        seed_everything(3)
        self.model = network()
        settings = {"where": PartOfBatch(rho, SHARE), **parts}
        self.optimizer = vsam.SharpnessAware(BASES[base](self.model.parameters()), model=self.model, **settings)  # type: ignore[arg-type]
        self.passes: list[tuple[float, list[Tensor], bool]] = []

    def closure(
        self, number: int, spoil: Callable[[float], float | Tensor] = lambda share: 1.0
    ) -> Callable[..., Tensor]:
        def closure(share: float = 1.0) -> Tensor:
            self.passes.append((share, self.weights(), self.optimizer.is_second_pass))
            keep = torch.arange(math.ceil(share * 8))
            loss = losses_of(self.model, number, keep).mean()
            (spoil(share) * loss).backward()
            return loss

        return closure

    def go(self, first: int = 0, last: int = LENGTH) -> "_Run":
        for number in range(first, last):
            self.optimizer.step(self.closure(number))
        return self

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def everything(self) -> dict[str, object]:
        model, optimizer = copy.deepcopy(self.model.state_dict()), copy.deepcopy(self.optimizer.state_dict())
        return {"model": model, "optimizer": optimizer, "generators": generators()}


@every_base
def test_a_small_pass_at_w_and_a_whole_one_at_w_plus_e(base: str) -> None:
    run = _Run(base)
    before = run.weights()
    run.go(last=1)
    (share, here, is_second), (whole, there, is_whole_second) = run.passes
    assert (share, is_second, whole, is_whole_second) == (SHARE, True, 1.0, False)
    assert_same(here, before)
    moved = math.sqrt(sum(float((one - other).square().sum()) for one, other in zip(there, before, strict=True)))
    assert moved == pytest.approx(0.1, rel=1e-4)
    record = run.optimizer.last
    assert record is not None
    assert (record.sampled, record.displaced, record.psf_norm) == (True, True, None)
    run.go(1, 8)
    assert run.optimizer.num_samples == 8
    assert run.optimizer.cost == run.optimizer.expected_cost == 1 + SHARE
    assert run.optimizer.will_sample is True


def test_it_mixes_with_a_rule_and_only_samples_take_the_small_pass() -> None:
    run = _Run(when=Every(3)).go(last=6)
    assert [share for share, _, _ in run.passes] == [SHARE, 1.0, 1.0, 1.0, SHARE, 1.0, 1.0, 1.0]
    assert run.optimizer.cost == pytest.approx(1 + SHARE / 3)
    assert run.optimizer.expected_cost == pytest.approx(1 + SHARE / 3)
    assert run.optimizer.will_sample is True


@every_base
def test_zero_radius_is_the_base_with_its_statistics_and_generators(base: str) -> None:
    run = _Run(base, rho=0.0).go()
    ours = generators()
    model = trained_by_base_alone(BASES[base])
    assert_same(run.weights(), [parameter.detach() for parameter in model.parameters()])
    assert_same(list(run.model.buffers()), list(model.buffers()))
    assert_same(ours, generators())


@pytest.mark.parametrize("at", [SHARE, 1.0])
def test_a_pass_that_fails_has_not_happened(at: float) -> None:
    straight, run = _Run().go(last=6).everything(), _Run()

    def fail(share: float) -> float:
        if share == at:
            raise _Failure
        return 1.0

    for number in range(6):
        before = run.everything()
        with pytest.raises(_Failure):
            run.optimizer.step(run.closure(number, fail))
        assert_same(run.everything(), before)
        run.go(number, number + 1)
    assert_same(run.everything(), straight)


@pytest.mark.parametrize("at", [SHARE, 1.0])
@pytest.mark.parametrize("base", ["momentum", "fused"])
def test_a_gradient_that_is_not_finite_in_either_pass_skips_the_step(at: float, base: str) -> None:
    run = _Run(base).go(last=4)
    before = run.weights()
    with pytest.warns(RuntimeWarning, match="not finite"):
        _ = (
            run.optimizer.step(run.closure(4, lambda share: math.inf if share == at else 1.0)),
            run.optimizer.num_skipped,
        )
    assert run.optimizer.num_skipped == 1
    assert_same(run.weights(), before)
    assert run.optimizer.num_samples == 5


@pytest.mark.parametrize("base", ["momentum", "adamw"])
def test_follows_its_twin_in_double_precision(base: str) -> None:
    model = oracles.smooth_network(seed=1)
    optimizer = vsam.SAM(BASES[base](model.parameters()), model=model, rho=0.1, share=SHARE)
    settings = {"momentum": oracles.SGD(0.05, 0.9, 1e-3), "adamw": oracles.AdamW(0.01, weight_decay=0.01)}
    twin, w = settings[base], oracles.flat(model)
    for inputs, labels in oracles.flat_batches(seed=5, count=200):
        count = math.ceil(SHARE * len(inputs))
        part = oracles.flat_gradient(w, inputs[:count], labels[:count])
        w = twin(w, oracles.flat_gradient(w + 0.1 * part / (part.norm() + 1e-12), inputs, labels))

        def closure(share: float = 1.0, x: Tensor = inputs, y: Tensor = labels) -> Tensor:
            count = math.ceil(share * len(x))
            loss = nn.functional.cross_entropy(model(x[:count]), y[:count])
            loss.backward()
            return loss

        optimizer.step(closure)
        torch.testing.assert_close(oracles.flat(model), w, rtol=0, atol=1e-10)


@every_base
def test_resumes_bit_for_bit(base: str) -> None:
    straight, other = _Run(base).go(last=10), _Run(base)
    saved = straight.everything()
    expected = straight.go(first=10).everything()
    other.model.load_state_dict(saved["model"])  # type: ignore[arg-type]
    other.optimizer.load_state_dict(through_a_file(saved["optimizer"]))  # type: ignore[arg-type]
    set_generators(saved["generators"])  # type: ignore[arg-type]
    assert_same(other.go(first=10).everything(), expected)


def test_a_scaler_scales_both_passes_and_changes_nothing() -> None:
    plain, run = _Run("sgd").go(last=5), _Run("sgd")
    scaler = vsam.amp.GradScaler("cpu", init_scale=2.0**6)
    for number in range(5):
        scaler.step(run.optimizer, run.closure(number, lambda share: scaler.scale(torch.ones(()))))
        scaler.update()
    for one, other in zip(run.weights(), plain.weights(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_closure_without_a_share_or_a_gradient_is_told_what_to_write() -> None:
    run = _Run()
    before = run.everything()
    with pytest.raises(RuntimeError, match=r"(?s)must take it. Write:.*def closure\(share=1.0\)"):
        run.optimizer.step(lambda: losses_of(run.model, 0).mean().backward())
    with pytest.raises(RuntimeError, match=r"closure\(share\) left no gradient"):
        run.optimizer.step(lambda share=1.0: losses_of(run.model, 0).mean())
    with pytest.raises(TypeError, match="a mistake of the closure's own"):
        run.optimizer.step(_mistaken)
    with pytest.raises(RuntimeError, match=r"(?s)too late.*def closure\(share"):
        run.optimizer.perturb()
    assert_same(run.everything(), before)


def _mistaken(share: float = 1.0) -> Tensor:
    raise TypeError("a mistake of the closure's own")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"when": GradientThreshold(9)}, "decides after the first gradient"),
        ({"when": Variation()}, "needs the PSF"),
        ({"between": Decayed(0.5)}, "needs the PSF"),
    ],
)
def test_parts_that_cannot_work_with_it_are_refused(parts: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _Run(**parts)  # type: ignore[arg-type]


def test_settings_that_cannot_be_are_refused() -> None:
    for share in (0.0, -0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"share must be (in|finite)"):
            PartOfBatch(0.1, share)
    with pytest.raises(ValueError, match="must need no pass of its own"):
        Displaced(PartOfBatch(0.1))


def test_sam_takes_a_share_and_all_of_the_batch_is_sam() -> None:
    def make(**settings: float) -> vsam.SAM:
        return vsam.SAM(torch.optim.SGD(network().parameters(), lr=0.1), **settings)  # type: ignore[arg-type]

    assert repr(make(share=0.1).where) == "PartOfBatch(rho=0.05, share=0.1)"
    assert repr(make(share=1.0).where) == "GlobalNorm(rho=0.05)"
    for every in (1, 5):
        assert "one pass per step plus 0.1 of one per sample" in make(share=0.1, every=every).describe()
    assert "Brock et al., ICML 2021" in make(share=0.1).describe()


def test_frozen_and_left_out_parameters_do_not_move_and_each_group_has_its_radius() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3), nn.Linear(3, 3))
    model[0].bias.requires_grad_(False)
    groups = [
        {"params": model[0].parameters(), "rho": 0.5},
        {"params": model[1].parameters(), "perturb": False},
        {"params": model[2].parameters()},
    ]
    optimizer = vsam.SAM(torch.optim.SGD(groups, lr=0.1), rho=0.1, share=0.5)
    seen: list[list[Tensor]] = []

    def closure(share: float = 1.0) -> Tensor:
        seen.append([p.detach().clone() for p in model.parameters()])
        count = math.ceil(share * 8)
        loss = nn.functional.cross_entropy(model(BATCHES[0][0][:count]), BATCHES[0][1][:count])
        loss.backward()
        return loss

    closure(0.5)
    chosen = [model[0].weight, *model[2].parameters()]
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in chosen))
    expected = {0: 0.5, 4: 0.1, 5: 0.1}
    gradients = [p.grad for p in model.parameters()]
    optimizer.zero_grad()
    optimizer.step(closure)
    for i, (before, after) in enumerate(zip(seen[1], seen[2], strict=True)):
        offset = 0 * before if i not in expected else expected[i] / norm * gradients[i]  # type: ignore[operator]
        torch.testing.assert_close(after - before, offset, rtol=1e-3, atol=1e-7)
