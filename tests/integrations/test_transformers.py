"""Transformers' own Trainer around our optimizers: against the stock Trainer, and against a loop by hand."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, default_data_collator

import vsam
from integrations.tiny import are_equal, logs, make_dataset, make_method, make_model, reset_accelerate, train, weights
from vsam.integrations.accelerate import PreparedOptimizer
from vsam.integrations.transformers import SharpnessAwareMixin, SharpnessAwareTrainer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> None:
    reset_accelerate()


class Recorder(TrainerCallback):
    """Notes every event, and the weights that callbacks see before the optimizer steps."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.seen: list[list[Tensor]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            self.events.append(name)
        return super().__getattribute__(name)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: nn.Module, **kwargs: Any) -> None:
        self.seen.append(weights(model))


def by_hand(model: nn.Module, optimizer: vsam.SharpnessAware, length: int, dtype: torch.dtype | None = None) -> list:
    """Train on two micro-batches of four per step, clipped to 0.5, at a falling rate, and return the losses."""
    batches = [default_data_collator(make_dataset(length)[i : i + 4]) for i in range(0, length, 4)]
    steps = [batches[i : i + 2] for i in range(0, len(batches), 2)]
    optimizer.max_grad_norm = 0.5
    model.train()
    losses = []
    for i, micro_batches in enumerate(steps):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - i / len(steps))

        def closure(micro_batches: list = micro_batches) -> Tensor:
            total = torch.tensor(0.0)
            for batch in micro_batches:
                with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                    loss = model(**batch).loss  # BERT takes `num_items_in_batch`, so that the Trainer does not divide
                loss.backward()
                total += loss.detach()
            return total

        losses.append(optimizer.step(closure).item())
    return losses


def test_without_a_radius_it_is_the_stock_trainer(tmp_path: Path) -> None:
    runs = []
    for kind in (Trainer, SharpnessAwareTrainer):
        model, recorder = make_model(), Recorder()
        optimizer = make_method(model, rho=0.0)
        given = optimizer if kind is SharpnessAwareTrainer else optimizer.base
        runs.append((model, recorder, train(tmp_path, model, given, kind, options={"callbacks": [recorder]})))
    (stock, events, stock_run), (ours, our_events, our_run) = runs
    assert are_equal(ours, stock)  # all micro-batches were repeated, with the same dropout
    assert our_events.events == events.events
    for entry, stock_entry in zip(logs(our_run), logs(stock_run), strict=True):
        assert entry.pop("grad_norm") == pytest.approx(stock_entry.pop("grad_norm"))
        assert entry == stock_entry
    assert our_run.state.num_input_tokens_seen == stock_run.state.num_input_tokens_seen == 32 * 6
    assert our_run.state.total_flos == stock_run.state.total_flos
    assert optimizer.num_samples == 4


@pytest.mark.parametrize("is_bfloat16", [False, True], ids=["float32", "bfloat16"])
def test_it_is_the_loop_by_hand(tmp_path: Path, is_bfloat16: bool) -> None:
    settings = {"method": vsam.VSAM, "rho": 0.5, "start": 3, "window": 4, "slices": 1, "initial_samples": 2}
    model = make_model(dropout=0.0)
    twin, recorder = copy.deepcopy(model), Recorder()
    optimizer, other = make_method(model, **settings), make_method(twin, **settings)
    # 13 micro-batches: the last step has one
    run = train(tmp_path, model, optimizer, options={"callbacks": [recorder]}, length=52, bf16=is_bfloat16)
    losses = by_hand(twin, other, 52, torch.bfloat16 if is_bfloat16 else None)
    assert 3 < optimizer.num_samples < 7
    assert optimizer.num_samples == other.num_samples
    tolerance = {"rtol": 0, "atol": 1e-3} if is_bfloat16 else {"rtol": 0, "atol": 1e-6}
    torch.testing.assert_close(weights(model), weights(twin), **tolerance)
    assert [entry["loss"] for entry in logs(run)] == pytest.approx(losses, abs=tolerance["atol"])
    start = weights(make_model(dropout=0.0))
    assert all(map(torch.equal, recorder.seen[0], start))  # not the perturbed ones


@pytest.mark.parametrize(
    "changes",
    [{"gradient_checkpointing": True}, {"torch_compile": True, "torch_compile_backend": "aot_eager"}],
    ids=["checkpointed", "compiled"],
)
@pytest.mark.filterwarnings("ignore")
def test_checkpointing_and_compiling_change_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    models = []
    for options in ({}, changes):
        model = make_model(dropout=0.0)
        train(tmp_path, model, make_method(model, rho=0.5), **options)
        models.append(model)
    torch.testing.assert_close(*map(weights, models), rtol=0, atol=1e-5)


class HalfMixin(Trainer):
    """Gets the scaler that fp16 brings on a GPU."""

    scaler: torch.amp.GradScaler

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.scaler = self.scaler


def half_trainer(scaler: torch.amp.GradScaler) -> type[Trainer]:
    return type("HalfTrainer", (SharpnessAwareMixin, HalfMixin), {"scaler": scaler})


def test_a_scaler_changes_nothing_but_the_scale(tmp_path: Path) -> None:
    runs = []
    for kind in (SharpnessAwareTrainer, half_trainer(torch.amp.GradScaler("cpu"))):
        model = make_model()
        runs.append((model, train(tmp_path, model, make_method(model, rho=0.5), kind)))
    assert are_equal(runs[0][0], runs[1][0])  # a power of two is exact
    assert isinstance(runs[1][1].accelerator.scaler, vsam.amp.GradScaler)
    assert [e["grad_norm"] for e in logs(runs[0][1])] == pytest.approx([e["grad_norm"] for e in logs(runs[1][1])])


class OverflowingMixin(HalfMixin):
    """Its loss overflows in the second pass of the second step."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        return loss * torch.inf if self.is_second_pass and self.state.global_step == 1 else loss


def test_an_overflow_in_the_second_pass_skips_the_step_and_the_scheduler(tmp_path: Path) -> None:
    kind = type("Overflowing", (SharpnessAwareMixin, OverflowingMixin), {"scaler": torch.amp.GradScaler("cpu")})
    model = make_model()
    optimizer = make_method(model, rho=0.5)
    trainer = train(tmp_path, model, optimizer, kind)
    assert optimizer.num_skipped == 1
    assert trainer.accelerator.scaler.get_scale() == 2.0**15
    rates = [entry["learning_rate"] for entry in logs(trainer)]
    assert rates == pytest.approx([0.1, 0.075, 0.075, 0.05])


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    changes = {"save_strategy": "steps", "save_steps": 3, "num_train_epochs": 2, "train_sampling_strategy": "random"}
    settings = {"method": vsam.VSAM, "rho": 0.5, "start": 2, "window": 3, "slices": 1, "initial_samples": 1, "seed": 1}
    model = make_model()
    optimizer = make_method(model, **settings)
    sampled: list[bool] = []
    optimizer.subscribe(lambda record: sampled.append(record.sampled))
    run = train(tmp_path, model, optimizer, **changes)
    resumed = make_model()
    other = make_method(resumed, **settings)
    with torch.no_grad():
        for parameter in resumed.parameters():
            parameter.zero_()
    again = train(tmp_path, resumed, other, resume=str(tmp_path / "checkpoint-3"), **changes)
    assert are_equal(resumed, model)
    assert not sampled[3]  # the first step after the checkpoint uses the PSF that is in it
    assert 3 < other.num_samples == optimizer.num_samples < 8
    assert logs(again) == logs(run)
    last, expected = other.state_dict()["sharpness"], optimizer.state_dict()["sharpness"]
    assert expected["memory"]
    assert all(torch.equal(last["memory"][i], expected["memory"][i]) for i in expected["memory"])
    assert last["states"] == expected["states"]


def test_a_stock_trainer_says_which_class_to_use(tmp_path: Path) -> None:
    model = make_model()
    with pytest.raises(RuntimeError, match=r"without a closure.*SharpnessAwareTrainer"):
        train(tmp_path, model, make_method(model), Trainer)
    with pytest.raises(ValueError, match=r"got dict\. .*SharpnessAwareTrainer\(…\) in place of Trainer"):
        train(tmp_path, model, None, Trainer, options={"optimizer_cls_and_kwargs": (vsam.SAM, {"rho": 0.1})})

    class HalfTrainer(HalfMixin):
        scaler = torch.amp.GradScaler("cpu")

    with pytest.raises(RuntimeError, match=r"torch's GradScaler cannot run .*SharpnessAwareTrainer\(…\)"):
        train(tmp_path, model, make_method(model), HalfTrainer)


def test_a_class_and_settings_make_the_optimizer(tmp_path: Path) -> None:
    model = make_model()
    chosen = (vsam.SAM, {"rho": 0.2, "every": 2})
    run = train(tmp_path, model, None, options={"optimizer_cls_and_kwargs": chosen}, weight_decay=0.1)
    assert isinstance(run.optimizer, PreparedOptimizer)
    optimizer = run.optimizer.optimizer
    assert type(optimizer) is vsam.SAM
    assert type(optimizer.base) is torch.optim.AdamW  # as the arguments say
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert {group["rho"] for group in optimizer.param_groups} == {0.2}
    assert optimizer.model is model
    assert optimizer.num_samples == 2

    chosen = (vsam.SAM, {"rho": 0.2, "base": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})})
    options = {"optimizer_cls_and_kwargs": chosen, "model_init": lambda: make_model()}
    run = train(tmp_path, None, None, options=options, weight_decay=0.1)  # type: ignore[arg-type]
    assert type(run.optimizer.base) is torch.optim.SGD
    assert [group["momentum"] for group in run.optimizer.param_groups] == [0.9, 0.9]
    assert run.optimizer.model is run.model
    assert chosen[1]["base"][1] == {"lr": 0.1, "momentum": 0.9}  # what was given is left alone

    with pytest.raises(ValueError, match=r'got SGD: write "base": \(torch.optim.SGD, '):
        train(tmp_path, model, None, options={"optimizer_cls_and_kwargs": (vsam.SAM, {"base": torch.optim.SGD})})
    with pytest.raises(ValueError, match="ESAM needs per-sample losses"):
        train(tmp_path, model, make_method(model, vsam.ESAM))


def test_the_trainer_fills_in_the_length_of_the_run(tmp_path: Path) -> None:
    """With `num_train_epochs`, as most scripts have it: 5 micro-batches of an epoch are 3 steps."""
    epochs = {"length": 20, "num_train_epochs": 2}
    options = {"optimizer_cls_and_kwargs": (vsam.VSAM, {"budget": 0.2})}
    assert train(tmp_path, make_model(), None, options=options, **epochs).optimizer.num_samples == 2
    options = {"optimizer_cls_and_kwargs": (vsam.AESAM, {"rho": 0.1})}
    run = train(tmp_path, make_model(), None, options=options, **epochs)
    assert run.optimizer.when.total_steps == run.state.global_step == 6
    model = make_model()
    optimizer = make_method(model, last=0.5)
    run = train(tmp_path, model, optimizer, **epochs)
    assert optimizer.when.total_steps == 6
    assert (optimizer.num_samples, optimizer.expected_cost) == (3, 1.5)
    model = make_model()
    optimizer = make_method(model, last=0.5, total_steps=4)
    train(tmp_path, model, optimizer, **epochs)
    assert optimizer.when.total_steps == 4  # as it was given
    assert optimizer.num_samples == 4


def test_a_start_phase_as_long_as_the_run_warns(tmp_path: Path) -> None:
    options = {"optimizer_cls_and_kwargs": (vsam.VSAM, {"rho": 0.05})}
    with pytest.warns(RuntimeWarning, match="start=100 covers all 4 steps"):
        train(tmp_path, make_model(), None, options=options)
    options = {"optimizer_cls_and_kwargs": (vsam.VSAM, {"rho": 0.05, "start": 3})}
    train(tmp_path, make_model(), None, options=options)


class SmallBatchesTrainer(SharpnessAwareTrainer):
    """Runs out of memory with more than two sentences."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        if len(inputs["labels"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().compute_loss(model, inputs, *args, **kwargs)


def test_the_length_follows_smaller_batches_another_run_and_a_checkpoint(tmp_path: Path) -> None:
    model = make_model()
    optimizer = make_method(model, last=0.5)
    run = train(tmp_path, model, optimizer, SmallBatchesTrainer, auto_find_batch_size=True)
    assert run.state.max_steps == optimizer.when.total_steps == 8
    assert optimizer.num_samples == 4
    run.train()
    assert optimizer.when.total_steps == 16
    assert optimizer.num_samples == 4 + 8
    saves = {"save_strategy": "steps", "save_steps": 3, "save_only_model": True}
    train(tmp_path, (model := make_model()), make_method(model), **saves)
    optimizer = make_method((model := make_model()), last=0.5)
    train(tmp_path, model, optimizer, resume=str(tmp_path / "checkpoint-3"), num_train_epochs=2)
    assert optimizer.when.total_steps == 5  # of its own steps: nothing of the first three was saved


class Drawing(TrainerCallback):
    """Draws a random number between two micro-batches."""

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        torch.rand(1)


class LossesTrainer(SharpnessAwareTrainer):
    """Keeps the loss of every micro-batch in either pass."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        self.losses = [*getattr(self, "losses", []), (self.is_second_pass, loss.item())]
        return loss


def test_each_micro_batch_is_repeated_with_its_own_dropout(tmp_path: Path) -> None:
    model = make_model(dropout=0.5)
    trainer: Any = train(
        tmp_path, model, make_method(model, rho=0.0), LossesTrainer, options={"callbacks": [Drawing()]}
    )
    first, second = ([loss for is_second, loss in trainer.losses if is_second is kind] for kind in (False, True))
    assert first == second
    assert len({*first}) == 8


class FailingTrainer(SharpnessAwareTrainer):
    """Run out of memory once in the second pass. Count the first passes and log in all of them."""

    has_failed = False
    num_first = 0

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        self.log({"logged": 1.0})
        self.num_first += not self.is_second_pass
        if self.is_second_pass and not self.has_failed:
            self.has_failed = True
            raise MemoryError
        return super().compute_loss(*args, **kwargs)


def test_a_failed_second_pass_puts_the_weights_back_and_the_next_run_is_clean(tmp_path: Path) -> None:
    model, twin = make_model(dropout=0.0), make_model(dropout=0.0)
    start = weights(model)
    trainer = FailingTrainer.__new__(FailingTrainer)
    with pytest.raises(MemoryError):
        train(tmp_path, model, make_method(model, rho=0.5), lambda *args, **kwargs: _kept(trainer, *args, **kwargs))
    assert all(map(torch.equal, weights(model), start))
    trainer.train()
    train(tmp_path, twin, make_method(twin, rho=0.5))
    assert are_equal(model, twin)
    assert trainer.num_first == 2 + 8
    assert sum("logged" in entry for entry in trainer.state.log_history) == 8


def _kept(trainer: Trainer, *args: Any, **kwargs: Any) -> Trainer:
    """Make this trainer, which the caller then still has after an exception."""
    trainer.__init__(*args, **kwargs)  # type: ignore[misc]
    return trainer


def test_other_optimizers_train_as_in_the_stock_trainer(tmp_path: Path) -> None:
    models = []
    for kind in (Trainer, SharpnessAwareTrainer):
        model = make_model()
        train(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.1), kind)
        models.append(model)
    assert are_equal(*models)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # in peft itself
def test_adapters_train_and_the_rest_stays(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_dropout=0.1, target_modules=["query"])
    model = peft.get_peft_model(make_model(), config)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    options = {"optimizer_cls_and_kwargs": (vsam.SAM, {"rho": 0.5})}
    run = train(tmp_path, model, None, options=options)
    assert run.optimizer.num_samples == 4
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed
    assert changed == {name for name, parameter in model.named_parameters() if parameter.requires_grad}
