"""Loggers, callbacks and exports of Lightning see the module with the mixin as an ordinary one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import BackboneFinetuning, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import nn

import lightning_net as nets
import vsam
from lightning_net import Net, Ordinary, assert_same, fit, short_vsam

pytestmark = nets.PACKAGE_WARNINGS


def base_alone(base: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    return base


def flat(base: torch.optim.Optimizer, model: nn.Module) -> vsam.SAM:
    """Two passes at each step, and the base optimizer's weights."""
    return vsam.SAM(base, model=model, rho=0.0)


class Listing(CSVLogger):
    """Lists what it gets."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.calls: list[Any] = []

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.calls.append((step, {name: float(value) for name, value in metrics.items()}))


class Logging:
    """Logs in three ways."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)  # type: ignore[misc]
        self.log("both", loss, on_step=True, on_epoch=True)  # type: ignore[attr-defined]
        self.log("step", loss)  # type: ignore[attr-defined]
        self.logger.log_metrics({"direct": loss.detach()}, step=batch_idx)  # type: ignore[attr-defined]
        return loss


class Plain(Logging, Ordinary):
    """With the base optimizer alone."""


class Sharp(Logging, Net):
    """With the mixin."""


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_loggers_get_every_value_of_the_ordinary_module(micro_batches: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_epochs": 2, "log_every_n_steps": 1, "accumulate_grad_batches": micro_batches}
    plain, sharp = Listing(tmp_path), Listing(tmp_path)
    fit(Plain(base_alone), logger=plain, **options)
    fit(Sharp(flat), logger=sharp, **options)
    assert sharp.calls == plain.calls
    assert sum("direct" in metrics for _, metrics in sharp.calls) == 16  # one per micro-batch


def test_the_learning_rate_is_logged_under_the_methods_name(tmp_path: Path) -> None:
    class Scheduled(Net):
        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)]

    logger = Listing(tmp_path)
    fit(Scheduled(short_vsam), logger=logger, callbacks=[LearningRateMonitor()], max_epochs=2)
    assert [metrics["lr-VSAM"] for _, metrics in logger.calls if "lr-VSAM" in metrics] == [0.1, 0.05]


class Tuned(Net):
    """A head that trains at once, and a backbone that a callback adds to the optimizer later."""

    def __init__(self, make: nets.Make) -> None:
        super().__init__(make)
        self.backbone, self.head = self.network[:3], self.network[3]

    def configure_optimizers(self) -> Any:
        self.optimizer = self.make(torch.optim.SGD(self.head.parameters(), lr=0.1, momentum=0.9), self)
        return [self.optimizer], [torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.9)]


@pytest.mark.parametrize("num_before", [1, 3])
def test_finetuning_resumes_as_with_the_base_optimizer(num_before: int, tmp_path: Path) -> None:
    def resumed(make: nets.Make, path: Path) -> Any:
        module = Tuned(make)
        for max_epochs, found in ((num_before, None), (5, path)):
            module = Tuned(make)
            trainer = nets.trainer(callbacks=[BackboneFinetuning(unfreeze_backbone_at_epoch=2)], max_epochs=max_epochs)
            trainer.fit(module, nets.loader(), ckpt_path=found, weights_only=True)
            trainer.save_checkpoint(path)
        return module

    plain = resumed(base_alone, tmp_path / "plain.ckpt")
    module = resumed(flat, tmp_path / "sharp.ckpt")
    assert not torch.equal(plain.backbone[0].weight, nets.network()[0].weight)
    assert [group["lr"] for group in module.optimizer.param_groups] == [g["lr"] for g in plain.optimizer.param_groups]
    assert [group["rho"] for group in module.optimizer.param_groups] == [0.0, 0.0]
    assert module.optimizer.num_samples == 40
    assert_same(module, plain)


def test_what_lightning_wraps_around_the_optimizer_shows_its_groups_state_and_defaults() -> None:
    class Asking(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            found: Any = self.optimizers()
            assert found.param_groups is self.optimizer.base.param_groups
            assert found.state is self.optimizer.base.state
            assert found.defaults is self.optimizer.base.defaults
            assert found.num_samples == self.optimizer.num_samples
            return super().training_step(batch, batch_idx)

    fit(Asking(short_vsam))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_is_exported_to_torchscript(tmp_path: Path) -> None:
    class Forward(Net):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return self.network(points)  # type: ignore[no-any-return]

    module, points = fit(Forward()), nets.batches()[0][0]
    torch.jit.save(module.to_torchscript(), tmp_path / "net.pt")  # type: ignore[no-untyped-call]
    module.eval()
    assert torch.equal(torch.jit.load(tmp_path / "net.pt").eval()(points), module(points))  # type: ignore[no-untyped-call]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch.compile's own
def test_a_compiled_module_logs_the_first_pass() -> None:
    class Logs(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

    ordinary, module = fit(Logs()), Logs()
    trainer = nets.trainer()
    trainer.fit(torch.compile(module, backend="eager"), nets.loader())  # type: ignore[arg-type]
    assert float(trainer.callback_metrics["loss"]) == float(ordinary.trainer.callback_metrics["loss"])
    assert_same(module, ordinary)
