"""Lightning without the mixin: what is right runs, what would be wrong names the line to write."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn
from torchmetrics import MeanMetric

import lightning_net as nets
import vsam
from lightning_net import Net, Ordinary, assert_same, by_hand, fit, short_vsam

pytestmark = nets.PACKAGE_WARNINGS


def test_plain_automatic_optimisation_works_and_returns_the_first_loss() -> None:
    class Noted(Ordinary):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.noted = [*getattr(self, "noted", []), float(outputs["loss"])]

        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            self.losses: list[float] = []
            self.optimizer.subscribe(lambda record: self.losses.append(float(record.loss)))
            return optimizer

    module = fit(Noted(short_vsam))
    assert_same(module.network, by_hand(short_vsam)[0])
    assert module.noted == module.losses


def test_metrics_of_the_validation_alone_are_no_reason() -> None:
    class Validated(Ordinary):
        def __init__(self) -> None:
            super().__init__()
            self.mean = MeanMetric()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.mean.update(batch[0])
            self.log("mean", self.mean)

    module = Validated()
    nets.trainer(max_epochs=2).fit(module, nets.loader(), nets.loader())
    assert module.optimizer.num_samples == 16


class Logging(Ordinary):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss


class Measuring(Ordinary):
    def __init__(self) -> None:
        super().__init__()
        self.mean = MeanMetric()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.mean(loss)
        return loss


class Clipping(Ordinary):
    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        pass


class Clearing(Ordinary):
    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        pass


class Hooked(Callback):
    def on_before_optimizer_step(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (Ordinary, {"accumulate_grad_batches": 2}, "accumulate_grad_batches=2 leaves earlier micro-batches out"),
        (Ordinary, {"gradient_clip_val": 1.0}, "clipped after each pass"),
        (Clipping, {}, "clipped after each pass"),
        (Clearing, {}, r"optimizer_zero_grad\(\) would be called in both passes"),
        (Logging, {}, "would count both passes"),
        (Measuring, {}, "would count both passes"),
        (Ordinary, {"callbacks": [Hooked()]}, r"on_before_optimizer_step\(\) would be called in both passes"),
        (Ordinary, {"plugins": MixedPrecision("16-mixed", "cpu")}, "GradScaler cannot run the second pass"),
    ],
)
def test_what_would_be_wrong_names_the_mixin(module: type[Ordinary], options: dict[str, Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=rf"(?s){words}.*SharpnessAwareModule, LightningModule\)"):
        fit(module(), **options)


@pytest.mark.parametrize("kind", [Ordinary, Net])
def test_strategies_that_cannot_run_or_save_it_are_named(kind: type[Ordinary], tmp_path: Path) -> None:
    def strategy(name: str) -> Any:
        return type(name, (SingleDeviceStrategy,), {"setup": SingleDeviceStrategy.setup})("cpu")

    with pytest.raises(RuntimeError, match="SingleDeviceXLAStrategy steps by itself"):
        fit(kind(), strategy=strategy("SingleDeviceXLAStrategy"))
    saving: dict[str, Any] = {"enable_checkpointing": True, "default_root_dir": tmp_path}
    with pytest.raises(RuntimeError, match=r"save_weights_only=True.*StatefulOptimizer\(model, optimizer\)"):
        fit(kind(), strategy=strategy("ModelParallelStrategy"), **saving)
    weights = ModelCheckpoint(tmp_path, save_weights_only=True)
    fit(kind(), strategy=strategy("ModelParallelStrategy"), callbacks=[weights], **saving)


def test_manual_optimisation_without_a_closure_works() -> None:
    class Manual(Ordinary):
        def __init__(self) -> None:
            super().__init__(lambda base, model: short_vsam(base, model.network))
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            if optimizer.perturb():
                self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    assert_same(fit(Manual()).network, by_hand(short_vsam)[0])


def test_a_wrong_base_is_not_blamed_on_lightning() -> None:
    class Wrong(Ordinary):
        def configure_optimizers(self) -> Any:
            return vsam.SAM(torch.optim.SGD, model=self)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="Write:"):
        fit(Wrong())


def test_other_partials_are_ordinary_closures() -> None:
    model = nn.Linear(2, 1)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1))

    def closure(factor: float) -> Any:
        loss = factor * model(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    optimizer.step(partial(closure, 2.0))
    assert optimizer.num_samples == 1
