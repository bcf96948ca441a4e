"""Lightning fills in the length of the run for methods that need it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch import nn
from torch.utils.data import IterableDataset

import lightning_net as nets
import vsam
from lightning_net import Net, assert_same, fit

pytestmark = nets.PACKAGE_WARNINGS


def late(base: torch.optim.Optimizer, model: nn.Module) -> vsam.SAM:
    return vsam.SAM(base, model=model, rho=0.5, last=0.25)


def aesam(base: torch.optim.Optimizer, model: nn.Module) -> vsam.AESAM:
    return vsam.AESAM(base, model=model, rho=0.5)


def length(module: Any) -> int | None:
    return module.optimizer.when.total_steps  # type: ignore[no-any-return]


class Watched(Net):
    """Remembers which steps were sampled."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        self.sampled: list[int] = []
        self.optimizer.subscribe(lambda record: self.sampled.append(record.step) if record.sampled else None)
        return optimizer


@pytest.mark.parametrize(("micro_batches", "steps", "sampled"), [(1, 16, [13, 14, 15, 16]), (3, 6, [5, 6])])
def test_late_sam_samples_the_end_of_the_run(micro_batches: int, steps: int, sampled: list[int]) -> None:
    module = fit(Watched(late), max_epochs=2, accumulate_grad_batches=micro_batches)
    assert length(module) == module.trainer.global_step == steps
    assert module.sampled == sampled


def test_adaptive_sam_knows_the_length_too() -> None:
    module = fit(Net(aesam), max_epochs=2, max_steps=10)
    assert length(module) == 10
    assert 0 < module.optimizer.num_samples < 10


def test_an_explicit_length_wins() -> None:
    module = fit(Watched(lambda base, model: vsam.SAM(base, model=model, last=0.25, total_steps=4)))
    assert length(module) == 4
    assert module.sampled == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("make", [late, aesam])
def test_a_resumed_run_ends_with_the_same_weights(make: nets.Make, tmp_path: Path) -> None:
    class Saving(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    whole, resumed = fit(Net(make), max_epochs=3, callbacks=[Saving()]), Net(make)
    nets.trainer(max_epochs=3).fit(resumed, nets.loader(), ckpt_path=tmp_path / "1.ckpt", weights_only=True)
    assert length(resumed) == length(whole) == 24
    assert resumed.optimizer.num_samples == whole.optimizer.num_samples > 0
    assert_same(resumed, whole)


def test_a_new_optimizer_in_a_trainer_that_goes_on_counts_the_steps_to_come() -> None:
    module, trainer = Watched(late), nets.trainer()
    trainer.fit(module, nets.loader())
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, nets.loader())
    assert trainer.global_step == 16
    assert length(module) == 8
    assert module.sampled == [7, 8]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(nets.batches())


class Manual(Net):
    def __init__(self, make: nets.Make) -> None:
        super().__init__(make)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        def closure() -> Any:
            loss = super(Manual, self).training_step(batch, batch_idx)
            self.manual_backward(loss)
            return loss

        self.optimizers().step(closure)


@pytest.mark.parametrize("make", [late, aesam])
def test_an_unknown_length_is_the_methods_own_error(make: nets.Make) -> None:
    stream = torch.utils.data.DataLoader(Stream(), batch_size=None)
    varying = GradientAccumulationScheduler({0: 1, 1: 2})
    for module, options, data in (
        (Net(make), {}, stream),
        (Net(make), {"max_epochs": -1}, nets.loader()),
        (Net(make), {"callbacks": [varying]}, nets.loader()),
        (Manual(make), {}, nets.loader()),
    ):
        with pytest.raises(ValueError, match=r"needs the length of the run: pass total_steps="):
            nets.trainer(**options).fit(module, data)
    module = Net(make)
    nets.trainer(max_steps=8).fit(module, stream)
    assert length(module) == 8


@pytest.mark.filterwarnings("ignore:You are trying to:UserWarning")
def test_a_dev_run_is_no_run() -> None:
    assert fit(Net(late), fast_dev_run=True).optimizer.last.step == 1
    fit(Net(lambda base, model: vsam.VSAM(base, model=model)), fast_dev_run=2)


def test_a_start_phase_that_covers_the_run_warns() -> None:
    with pytest.warns(RuntimeWarning, match=r"start=100 covers all 8 steps.*budget=0\.2"):
        fit(Net(lambda base, model: vsam.VSAM(base, model=model)))
