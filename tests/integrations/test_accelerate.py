"""Accelerate's loops around our optimizers, against loops by hand."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import accelerate
import pytest
import torch
import torch.distributed.checkpoint as dcp
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedType
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

import vsam
from vsam.distributed import StatefulOptimizer
from vsam.integrations.accelerate import Accelerator, PreparedOptimizer, step

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> None:
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


class Training:
    """A network with BatchNorm and dropout, its batches, and the optimizer that an accelerator has prepared."""

    def __init__(
        self,
        accelerator: accelerate.Accelerator | None,
        method: Any = vsam.SAM,
        gives_model: bool = True,
        **settings: Any,
    ) -> None:
        torch.manual_seed(0)
        self.batches = [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(8)]
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 3))
        base = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.method = method(base, model=self.model if gives_model else None, **{"rho": 0.5, **settings})
        self.optimizer: Any = self.method
        self.scheduler: Any = torch.optim.lr_scheduler.ExponentialLR(base, 0.9)
        self.accelerator = accelerator
        if accelerator is not None:
            prepared = accelerator.prepare(self.model, self.method, self.scheduler)
            self.model, self.optimizer, self.scheduler = prepared

    def loss(self, batch: tuple[Tensor, Tensor], factor: float = 1.0) -> Tensor:
        return factor * nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def closure(self, batch: tuple[Tensor, Tensor], factor: float = 1.0) -> Tensor:
        loss = self.loss(batch, factor)
        self.accelerator.backward(loss) if self.accelerator is not None else loss.backward()
        return loss

    def weights(self) -> list[Tensor]:
        return [value.detach().clone() for value in self.model.state_dict().values()]


def by_hand(training: Training, num_micro_batches: int = 1) -> list[float]:
    """Train with the core alone, all micro-batches in the closure, and return the losses."""
    losses = []
    for i in range(0, 8, num_micro_batches):

        def closure(micro_batches: list = training.batches[i : i + num_micro_batches]) -> Tensor:
            parts = [training.closure(batch, 1 / num_micro_batches).detach() for batch in micro_batches]
            return torch.stack(parts).sum()

        losses.append(training.method.step(closure).item())
        training.scheduler.step()
    return losses


def without_closure(training: Training, clip: Callable[[Training], object]) -> None:
    for batch in training.batches:
        training.optimizer.zero_grad()
        training.closure(batch)
        if training.optimizer.perturb():
            training.closure(batch)
        clip(training)
        training.optimizer.step()
        training.scheduler.step()


def assert_same(one: Training, other: Training, atol: float = 0.0) -> None:
    torch.testing.assert_close(one.weights(), other.weights(), rtol=0, atol=atol)
    assert one.method.num_samples == other.method.num_samples > 0


@pytest.mark.parametrize("kind", [accelerate.Accelerator, Accelerator])
def test_a_step_over_micro_batches_repeats_all_and_returns_the_mean_loss(kind: type[accelerate.Accelerator]) -> None:
    settings = {"method": vsam.VSAM, "start": 2, "max_grad_norm": 0.5}
    expected = Training(None, **settings)
    losses = by_hand(expected, 2)
    training = Training(kind(cpu=True, gradient_accumulation_steps=2), **settings)
    seen = []
    for i in range(0, 8, 2):
        closures = [partial(training.closure, batch) for batch in training.batches[i : i + 2]]
        seen.append(step(training.accelerator, training.optimizer, closures).item())
        training.scheduler.step()
    assert_same(training, expected)
    assert seen == pytest.approx(losses, rel=1e-6)
    assert training.scheduler.get_last_lr() == pytest.approx([0.1 * 0.9**4])


def test_a_loop_without_a_closure_clips_what_the_base_gets() -> None:
    expected = Training(None, vsam.LookSAM, every=2, max_grad_norm=0.3)
    without_closure(expected, lambda _: None)
    training = Training(Accelerator(cpu=True), vsam.LookSAM, every=2)
    norms: list[Any] = []

    def clip(training: Training) -> None:
        norms.append(training.accelerator.clip_grad_norm_(training.model.parameters(), 0.3).item())

    without_closure(training, clip)
    assert_same(training, expected)
    assert max(norms) > 0.3  # there was something to clip


def test_the_prepared_step_returns_the_loss_and_shows_the_method() -> None:
    expected = Training(None)
    expected_loss = expected.method.step(partial(expected.closure, expected.batches[0]))
    training = Training(Accelerator(cpu=True))
    loss = training.optimizer.step(partial(training.closure, training.batches[0]))
    assert loss.item() == expected_loss.item()
    assert isinstance(training.optimizer, PreparedOptimizer)
    assert training.optimizer.num_samples == 1
    assert training.optimizer.last.sampled
    with pytest.raises(AttributeError, match="nonsense"):
        _ = training.optimizer.nonsense


def half(kind: type[accelerate.Accelerator]) -> accelerate.Accelerator:
    """An accelerator with the scaler that fp16 brings on a GPU."""
    accelerator = kind(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu")
    return accelerator


def test_a_scaler_changes_nothing_but_the_scale() -> None:
    expected = Training(None, max_grad_norm=0.3)
    without_closure(expected, lambda _: None)
    loop = Training(Accelerator(cpu=True))
    loop.accelerator.scaler = loop.optimizer.scaler = vsam.amp.GradScaler("cpu")
    norms = []

    def clip(training: Training) -> None:
        norms.append(training.accelerator.clip_grad_norm_(training.model.parameters(), 0.3).item())

    without_closure(loop, clip)
    assert_same(loop, expected)
    assert max(norms) < 10  # without the scaler's factor
    training = Training(half(accelerate.Accelerator), max_grad_norm=0.3)
    for batch in training.batches:
        step(training.accelerator, training.optimizer, [partial(training.closure, batch)])
        training.scheduler.step()
    assert_same(training, expected)
    assert type(training.accelerator.scaler) is vsam.amp.GradScaler
    assert training.optimizer.scaler is training.accelerator.scaler


def test_an_overflow_skips_the_step_and_the_prepared_scheduler() -> None:
    training = Training(half(accelerate.Accelerator))
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    for factor, rate, scale in ((torch.inf, 0.1, 2.0**15), (1.0, 0.09, 2.0**15)):
        step(training.accelerator, training.optimizer, [partial(training.closure, training.batches[0], factor)])
        training.scheduler.step()
        assert training.scheduler.get_last_lr() == pytest.approx([rate])
        assert training.accelerator.scaler.get_scale() == scale
        assert all(map(torch.equal, training.model.parameters(), before)) is (factor == torch.inf)
    assert training.method.num_skipped == 1


def test_a_saved_state_continues_to_the_bit(tmp_path: Path) -> None:
    settings = {"method": vsam.VSAM, "start": 2, "window": 3, "slices": 1, "initial_samples": 1.5, "seed": 4}

    def run(training: Training, batches: slice) -> None:
        for batch in training.batches[batches]:
            step(training.accelerator, training.optimizer, [partial(training.closure, batch)])
            training.scheduler.step()

    training = Training(accelerate.Accelerator(cpu=True), **settings)
    run(training, slice(0, 4))
    training.accelerator.save_state(tmp_path)
    run(training, slice(4, 5))
    assert not training.method.last.sampled  # it uses the PSF that was saved
    run(training, slice(5, 8))
    AcceleratorState._reset_state(True)
    resumed = Training(accelerate.Accelerator(cpu=True), **settings)
    resumed.accelerator.load_state(tmp_path)
    run(resumed, slice(4, 8))
    assert_same(resumed, training)


def test_accelerates_own_accumulation_of_closures_is_refused() -> None:
    """It calls the optimizer at the last micro-batch only, so the closures of the others would never run."""
    training = Training(accelerate.Accelerator(gradient_accumulation_steps=2, cpu=True))
    first, second = training.batches[:2]
    with training.accelerator.accumulate(training.model):
        training.optimizer.step(partial(training.closure, first))
    training.method.load_state_dict(training.method.state_dict())  # also in a run that was resumed
    with (
        training.accelerator.accumulate(training.model),
        pytest.raises(RuntimeError, match=r"the others would be dropped.*vsam\.integrations\.accelerate\.step"),
    ):
        training.optimizer.step(lambda: training.closure(second))


def accumulate(
    training: Training, repeated: Sequence[int], first: str = "accelerator", second: str = "accelerator"
) -> None:
    """Run batches 0 and 1 in accelerate's own context, and these in the second pass, each by a kind of backward."""

    def backward(kind: str, batch: tuple[Tensor, Tensor]) -> None:
        if kind == "accelerator":
            training.closure(batch)
        else:
            training.loss(batch, 0.5).backward()

    for i, batch in enumerate(training.batches[:2], start=1):
        with training.accelerator.accumulate(training.model):
            backward(first, batch)
            assert training.optimizer.perturb() is (i == 2)
            if i == 2:
                for other in repeated:
                    backward(second, training.batches[other])
            training.optimizer.step()
            training.optimizer.zero_grad()


def test_perturb_waits_for_the_last_micro_batch_and_notices_one_that_is_not_repeated() -> None:
    expected = Training(None)
    torch.manual_seed(1)
    by_hand_once = [partial(expected.closure, batch, 0.5) for batch in expected.batches[:2]]
    expected.method.step(lambda: torch.stack([closure() for closure in by_hand_once]).sum())
    training = Training(Accelerator(cpu=True, gradient_accumulation_steps=2))
    torch.manual_seed(1)
    accumulate(training, [0, 1])
    assert_same(training, expected)
    before = copy.deepcopy([*training.model.parameters()])
    with pytest.raises(RuntimeError, match="2 micro-batches and the second one 1"):
        accumulate(training, [1])
    training.method.zero_grad()  # abandons the step
    assert all(map(torch.equal, training.model.parameters(), before))


@pytest.mark.parametrize("gives_model", [True, False])
@pytest.mark.parametrize("first", ["accelerator", "loss"])
@pytest.mark.parametrize("second", ["accelerator", "loss"])
def test_a_micro_batch_that_is_not_repeated_is_noticed_in_any_backward(
    first: str, second: str, gives_model: bool
) -> None:
    training = Training(Accelerator(cpu=True, gradient_accumulation_steps=2), gives_model=gives_model)
    accumulate(training, [0, 1], first, second)
    with pytest.raises(RuntimeError, match="and the second one 1"):
        accumulate(training, [1], first, second)


@pytest.mark.parametrize("repeated", [[1, 1], [0, 0], [1, 2], [2, 3]])
def test_as_many_other_micro_batches_are_refused(repeated: list[int]) -> None:
    training = Training(Accelerator(cpu=True, gradient_accumulation_steps=2))
    accumulate(training, [1, 0])
    with pytest.raises(RuntimeError, match="other micro-batches than the first"):
        accumulate(training, repeated)


@pytest.mark.parametrize("kind", [accelerate.Accelerator, Accelerator])
@pytest.mark.parametrize("waits", [True, False])
def test_perturbing_the_unprepared_optimizer_is_no_way_around(kind: type[accelerate.Accelerator], waits: bool) -> None:
    """It does not wait for the last micro-batch, nor count what it cannot see."""
    training = Training(kind(cpu=True, gradient_accumulation_steps=2))

    def run() -> None:
        for batch in training.batches[:2]:
            with training.accelerator.accumulate(training.model):
                training.closure(batch)
                if (training.accelerator.sync_gradients or not waits) and training.method.perturb():
                    training.closure(batch)
                training.optimizer.step()
                training.optimizer.zero_grad()

    with pytest.raises(RuntimeError, match="and the second one 1" if waits else "called again without step"):
        run()


def test_the_length_of_the_run_is_asked_for_and_may_be_set_after_prepare() -> None:
    settings = {"method": vsam.AESAM, "delta": 0.5}
    training = Training(Accelerator(cpu=True, gradient_accumulation_steps=2), **settings)
    training.closure(training.batches[0])
    line = r"optimizer\.set_total_steps\(num_epochs \* math\.ceil"
    with pytest.raises(ValueError, match=line):
        training.optimizer.perturb()
    training.optimizer.zero_grad()
    with pytest.raises(ValueError, match=line):
        step(training.accelerator, training.optimizer, [partial(training.closure, training.batches[0])])
    training.optimizer.set_total_steps(3 * math.ceil(5 / training.accelerator.gradient_accumulation_steps))
    assert training.method.when.total_steps == 9  # type: ignore[attr-defined]
    step(training.accelerator, training.optimizer, [partial(training.closure, training.batches[0])])
    given = Training(Accelerator(cpu=True), vsam.SAM, last=0.5, total_steps=2)
    given.optimizer.set_total_steps(100)
    for batch in given.batches[:2]:
        step(given.accelerator, given.optimizer, [partial(given.closure, batch)])
    assert given.method.num_samples == 1


def test_what_would_be_wrong_is_refused() -> None:
    training = Training(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2))
    closure = partial(training.closure, training.batches[0])
    training.closure(training.batches[0])
    with pytest.raises(RuntimeError, match=r"without a closure.*vsam\.integrations\.accelerate"):
        training.optimizer.step()
    training.optimizer.zero_grad()
    run = partial(step, training.accelerator)
    with pytest.raises(ValueError, match="one function per micro-batch, got functools"):
        run(training.optimizer, closure)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one function per micro-batch"):
        run(training.optimizer, [])
    with pytest.raises(ValueError, match="optimizer prepared by this accelerator, got SAM"):
        run(training.method, [closure])
    with pytest.raises(ValueError, match="optimizer prepared by this accelerator, got SGD"):
        run(training.accelerator.prepare(torch.optim.SGD(training.model.parameters(), lr=0.1)), [closure])
    with pytest.raises(ValueError, match=r"must be an accelerate\.Accelerator, got Sequential"):
        step(training.model, training.optimizer, [closure])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two functions of the same variables"):
        run(training.optimizer, [lambda: training.closure(batch) for batch in training.batches[:2]])  # noqa: B023
    with pytest.raises(ValueError, match=r"must return the loss, got NoneType from closures\[1\]"):
        run(training.optimizer, [closure, lambda: None])
    with training.accelerator.accumulate(training.model), pytest.raises(RuntimeError, match="all of them to one call"):
        run(training.optimizer, [closure])


@pytest.mark.parametrize(
    ("engine", "name"),
    [("DEEPSPEED", "DEEPSPEED"), ("MEGATRON_LM", "MEGATRON_LM"), ("XLA", "XLA"), ("FSDP", "FSDP1")],
)
def test_engines_that_step_by_themselves_are_named(engine: str, name: str) -> None:
    training = Training(accelerate.Accelerator(cpu=True))
    plugin = SimpleNamespace(fsdp_version=1)
    vars(training.accelerator.state).update(distributed_type=DistributedType[engine], fsdp_plugin=plugin)  # type: ignore
    with pytest.raises(RuntimeError, match=f"cannot step under {name}, .* use one process, DDP or FSDP2"):
        step(training.accelerator, training.optimizer, [partial(training.closure, training.batches[0])])  # type: ignore


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
def test_a_distributed_checkpoint_takes_what_was_prepared(tmp_path: Path) -> None:
    training = Training(accelerate.Accelerator(cpu=True))
    model, rate = training.model, training.optimizer.param_groups[0]["lr"]
    with pytest.raises(RuntimeError, match=r"StatefulOptimizer\(model, optimizer\)"):
        get_optimizer_state_dict(model, training.optimizer)
    assert training.optimizer.param_groups[0]["lr"] == rate  # which torch sets to 0 to make a fresh optimizer's state
    step(training.accelerator, training.optimizer, [partial(training.closure, training.batches[0])])
    dcp.save({"optimizer": StatefulOptimizer(model, training.optimizer)}, checkpoint_id=tmp_path)
    other = Training(accelerate.Accelerator(cpu=True))
    dcp.load({"optimizer": StatefulOptimizer(other.model, other.optimizer)}, checkpoint_id=tmp_path)
    assert other.method.num_samples == training.method.num_samples == 1


def test_only_whole_gradients_are_clipped_and_others_as_always() -> None:
    training = Training(Accelerator(cpu=True))
    other = nn.Linear(4, 3)
    training.accelerator.prepare(torch.optim.SGD(other.parameters(), lr=0.1))
    clip = training.accelerator.clip_grad_norm_
    other(training.batches[0][0]).sum().backward()
    clip(other.parameters(), 1e-3)
    assert nn.utils.get_total_norm([p.grad for p in other.parameters()]) == pytest.approx(1e-3, rel=1e-2)
    training.closure(training.batches[0])
    with pytest.raises(RuntimeError, match=r"belongs between perturb\(\) and step\(\)"):
        clip(training.model.parameters(), 1.0)
    training.optimizer.perturb()
    training.closure(training.batches[0])
    with pytest.raises(ValueError, match="all parameters of a sharpness-aware optimizer and no others, got 2 of its 6"):
        clip(training.model[0].parameters(), 1.0)
    with pytest.raises(ValueError, match="norm_type must be 2"):
        clip(training.model.parameters(), 1.0, norm_type=1)
    with pytest.raises(RuntimeError, match="would clip the second gradient only"):
        training.accelerator.clip_grad_value_(training.model.parameters(), 1.0)
