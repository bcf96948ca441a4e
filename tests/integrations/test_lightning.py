"""Lightning with the mixin: both passes run, and only the first is seen."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torchmetrics import CatMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassPrecision

import lightning_net as nets
import vsam
from lightning_net import Net, Ordinary, assert_same, by_hand, fit, sam, short_vsam
from vsam.integrations.lightning import SharpnessAwareModule

pytestmark = nets.PACKAGE_WARNINGS


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("make", [sam, short_vsam])
def test_automatic_optimisation_is_the_ordinary_loop(make: nets.Make, micro_batches: int) -> None:
    module = fit(Net(make), accumulate_grad_batches=micro_batches)
    model, optimizer = by_hand(make, micro_batches)
    assert_same(module.network, model)
    assert module.optimizer.num_samples == optimizer.num_samples
    assert module.optimizer.last.step == optimizer.last.step == (8 if micro_batches == 1 else 3)
    assert float(module.optimizer.last.loss) == pytest.approx(float(optimizer.last.loss))


def test_with_another_optimizer_the_module_is_an_ordinary_one() -> None:
    def plain(base: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        return base

    assert_same(fit(Net(plain), accumulate_grad_batches=2), fit(Ordinary(plain), accumulate_grad_batches=2))


class Watched(Net):
    """Logs, has metrics and hooks, and draws random numbers."""

    def __init__(self, make: nets.Make = short_vsam) -> None:
        super().__init__(make)
        self.accuracy = MulticlassAccuracy(2)
        self.group = MetricCollection([MulticlassAccuracy(2, average="micro"), MulticlassPrecision(2, average="micro")])
        self.seen = CatMetric()
        self.draws: list[tuple[bool, float]] = []
        self.norms: list[float] = []
        self.losses: list[float] = []
        self.num_backwards = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.draws.append((self.is_second_pass, torch.rand(()).item()))
        logits = self.network(batch[0])
        loss = nn.functional.cross_entropy(logits, batch[1])
        assert self.accuracy(logits, batch[1]) is not None
        self.group.update(logits, batch[1])
        self.seen.update(batch[0].sum())
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("accuracy", self.accuracy, on_epoch=True, on_step=False)
        self.print("one line per micro-batch")
        return {"loss": loss}

    def on_after_backward(self) -> None:
        self.num_backwards += 1

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        assert not self.is_second_pass
        self.norms.append(float(nn.utils.get_total_norm([p.grad for p in self.network.parameters()])))

    def on_train_epoch_end(self) -> None:
        self.num_updates = self.accuracy.update_count

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        torch.rand(3)  # as a loader's augmentation would
        self.losses.append(float(outputs["loss"]))

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        self.records: list[vsam.StepRecord] = []
        self.optimizer.subscribe(self.records.append)
        return optimizer


def test_only_the_first_pass_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    module = Watched()
    trainer = nets.trainer(accumulate_grad_batches=2, log_every_n_steps=1)
    trainer.fit(module, nets.loader())
    assert 0 < module.optimizer.num_samples < 4
    first = [draw for is_second, draw in module.draws if not is_second]
    second = [draw for is_second, draw in module.draws if is_second]
    sampled = [i for record in module.records if record.sampled for i in (2 * record.step - 2, 2 * record.step - 1)]
    assert len(first) == 8
    assert second == [first[i] for i in sampled]  # each micro-batch with its own random numbers
    assert capsys.readouterr().out.count("one line per micro-batch") == 8
    assert module.num_backwards == 8
    assert module.norms == pytest.approx([record.grad_norm for record in module.records], rel=1e-6)
    pairs = [sum(module.losses[i : i + 2]) for i in range(0, 8, 2)]
    assert pairs == pytest.approx([float(record.loss) for record in module.records])
    assert float(trainer.callback_metrics["loss_epoch"]) == pytest.approx(2 * sum(module.losses) / 8)
    assert module.seen.compute().shape == (8,)
    assert module.num_updates == 8
    for metric in module.group.values():
        assert metric.update_count == 8
        assert int(metric.tp + metric.fn) == 40


class Clipped(Net):
    """Notes the gradient that the base optimizer gets."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        self.received: list[list[torch.Tensor]] = []
        self.optimizer.base.register_step_post_hook(self._note)
        return optimizer

    def _note(self, *_: Any) -> None:
        self.received.append([p.grad.clone() for p in self.network.parameters()])


def test_the_norm_is_clipped_where_the_base_optimizer_gets_the_gradient() -> None:
    def clipping(base: torch.optim.Optimizer, model: nn.Module) -> vsam.VSAM:
        return vsam.VSAM(base, model=model, rho=0.5, window=4, slices=2, start=2, max_grad_norm=0.1)

    module = fit(Clipped(short_vsam), gradient_clip_val=0.1, accumulate_grad_batches=2)
    model, _ = by_hand(clipping, 2)
    for value, expected in zip(module.network.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(value, expected)
    assert all(float(nn.utils.get_total_norm(gradients)) < 0.1001 for gradients in module.received)


def test_values_are_clipped_there_too() -> None:
    free, module = Clipped(), Clipped()
    fit(free, num_batches=1)
    fit(module, num_batches=1, gradient_clip_val=0.01, gradient_clip_algorithm="value")
    assert any(gradient.abs().max() > 0.02 for gradient in free.received[0])
    for gradient, clipped in zip(free.received[0], module.received[0], strict=True):
        assert torch.equal(gradient.clamp(-0.01, 0.01), clipped)


def test_a_clipping_of_ones_own_is_called_once_a_step() -> None:
    class Own(Clipped):
        calls = 0

        def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            assert isinstance(optimizer, vsam.VSAM)
            self.calls += 1
            for parameter in self.network.parameters():
                parameter.grad.zero_()

    module = fit(Own(short_vsam))
    assert module.calls == 8
    assert_same(nn.ParameterList(module.network.parameters()), nn.ParameterList(nets.network().parameters()))


def test_an_optimizer_step_of_ones_own_needs_nothing() -> None:
    class Own(Net):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
            optimizer.step(closure=optimizer_closure)

    assert_same(fit(Own(short_vsam), accumulate_grad_batches=2).network, by_hand(short_vsam, 2)[0])


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("to_none", [True, False, None])
def test_a_zero_grad_of_ones_own_must_clear_the_gradients(to_none: bool | None, micro_batches: int) -> None:
    class Own(Net):
        def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
            if to_none is not None:
                optimizer.zero_grad(set_to_none=to_none)

    module = Own(short_vsam)
    module.unused = nn.Parameter(torch.ones(1))
    if to_none is None:
        with pytest.raises(RuntimeError, match=r"keeps gradients.*accumulate_grad_batches="):
            fit(module, accumulate_grad_batches=micro_batches)
        assert_same(nn.ParameterList(module.network.parameters()), nn.ParameterList(nets.network().parameters()))
    else:
        fit(module, accumulate_grad_batches=micro_batches)
        assert_same(module.network, by_hand(short_vsam, micro_batches)[0])
        assert module.unused.grad is None


def test_a_zero_grad_that_keeps_some_gradients_is_refused_too() -> None:
    class Own(Net):
        def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
            self.network[3].zero_grad()

    with pytest.raises(RuntimeError, match="keeps gradients"):
        fit(Own())


def test_arguments_that_no_base_optimizer_would_get_are_refused() -> None:
    class Automatic(Net):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
            optimizer.step(closure=optimizer_closure, factor=2)

    class ByHand(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.optimizers().step(lambda: self.manual_backward(Ordinary.training_step(self, batch, 0)), factor=2)

    for module in (Automatic(), ByHand("closure")):
        with pytest.raises(TypeError, match="factor"):
            fit(module)
        assert_same(module.network, nets.network())


def test_bfloat16() -> None:
    module = fit(Net(short_vsam), precision="bf16-mixed", accumulate_grad_batches=2)
    assert_same(module.network, by_hand(short_vsam, 2, autocast=torch.bfloat16)[0])


def test_float16_scales_both_passes_and_hooks_see_unscaled_gradients() -> None:
    module = Watched()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
    plugin = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    fit(module, plugins=plugin, accumulate_grad_batches=2)
    scaler = vsam.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
    model, _ = by_hand(short_vsam, 2, autocast=torch.float16, scaler=scaler)
    assert_same(module.network, model)
    assert plugin.scaler.get_scale() == scaler.get_scale() == 2.0**13
    assert module.norms == pytest.approx([record.grad_norm for record in module.records], rel=1e-6)


def test_float16_skips_overflows_and_clips() -> None:
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=2.0**40))
    module = fit(Clipped(), plugins=plugin, gradient_clip_val=0.1)
    assert module.optimizer.num_skipped == 8
    assert plugin.scaler.get_scale() == 2.0**32
    assert_same(nn.ParameterList(module.network.parameters()), nn.ParameterList(nets.network().parameters()))
    plugin.scaler.load_state_dict({**plugin.scaler.state_dict(), "scale": 256.0})
    module = fit(Clipped(), plugins=plugin, gradient_clip_val=0.1)
    assert module.optimizer.num_skipped == 0
    assert all(float(nn.utils.get_total_norm(gradients)) < 0.1001 for gradients in module.received)


def test_resuming_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = fit(Net(short_vsam), max_epochs=2)
    trainer = nets.trainer()
    trainer.fit(Net(short_vsam), nets.loader())
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = Net(short_vsam)
    nets.trainer(max_epochs=2).fit(resumed, nets.loader(), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert_same(resumed, whole)
    assert resumed.optimizer.num_samples == whole.optimizer.num_samples
    assert resumed.optimizer.last.step == 16


def test_weights_are_averaged() -> None:
    class Noted(Net):
        def on_train_epoch_start(self) -> None:
            self.noted = [*getattr(self, "noted", []), [p.detach().clone() for p in self.network.parameters()]]

    module = fit(
        Noted(short_vsam), max_epochs=4, callbacks=[StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=2)]
    )
    assert module.optimizer.last.step == 32  # the epoch for BatchNorm's statistics takes no step
    averaged = [torch.stack(values).mean(0) for values in zip(*module.noted[1:4], strict=True)]
    for value, expected in zip(module.network.parameters(), averaged, strict=True):
        torch.testing.assert_close(value, expected)
    assert int(module.network[1].num_batches_tracked) == 8


class Manual(Net):
    """Manual optimisation, with a closure or without."""

    def __init__(self, style: str) -> None:
        super().__init__(lambda base, model: short_vsam(base, model.network))
        self.style, self.automatic_optimization, self.num_hooks = style, False, 0
        self.count, self.accuracy = CatMetric(), MulticlassAccuracy(2, average="micro")

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.num_hooks += 1

    def run_pass(self, batch: Any) -> Any:
        self.count.update(batch[0].sum())
        logits = self.network(batch[0])
        assert self.accuracy(logits, batch[1]) is not None
        loss = nn.functional.cross_entropy(logits, batch[1])
        self.manual_backward(loss)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizer: Any = self.optimizers(use_pl_optimizer=self.style != "raw")

        def closure() -> Any:
            loss = self.run_pass(batch)
            self.clip_gradients(optimizer, gradient_clip_val=10.0, gradient_clip_algorithm="norm")
            return loss

        if self.style == "closure":
            optimizer.step(closure)
            return
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        optimizer.zero_grad()
        self.run_pass(batch)
        if optimizer.perturb() if scaler is None else scaler.perturb(optimizer):
            self.run_pass(batch)
        optimizer.step()


@pytest.mark.parametrize("style", ["closure", "perturb", "raw"])
def test_manual_optimisation_shows_the_first_pass_only(style: str) -> None:
    module = fit(Manual(style))
    model, optimizer = by_hand(short_vsam)
    assert_same(module.network, model)
    assert 0 < optimizer.num_samples == module.optimizer.num_samples < 8
    assert module.num_hooks == module.trainer.global_step == (0 if style == "raw" else 8)  # Lightning never sees it
    assert module.count.update_count == module.accuracy.update_count == 8
    assert int(module.accuracy.tp + module.accuracy.fn) == 40
    automatic = fit(Watched()).trainer.callback_metrics["loss_epoch"]
    assert float(module.trainer.callback_metrics["loss"]) == pytest.approx(float(automatic))


@pytest.mark.parametrize("style", ["closure", "perturb"])
def test_manual_optimisation_in_float16(style: str) -> None:
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=2.0**12))
    module = fit(Manual(style), plugins=plugin)
    assert module.count.update_count == 8
    scaler = vsam.amp.GradScaler("cpu", init_scale=2.0**12)
    assert_same(module.network, by_hand(short_vsam, autocast=torch.float16, scaler=scaler)[0])


def esam(base: torch.optim.Optimizer, model: nn.Module) -> vsam.ESAM:
    return vsam.ESAM(base, model=model)


def test_esam_needs_manual_optimisation() -> None:
    class Selecting(Net):
        def __init__(self) -> None:
            super().__init__(esam)
            self.automatic_optimization, self.num_hooks = False, 0

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.num_hooks += 1

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            def losses(keep: Any = None) -> Any:
                points, labels = batch if keep is None else (batch[0][keep], batch[1][keep])
                values = nn.functional.cross_entropy(self.network(points), labels, reduction="none")
                self.log("loss", values.mean(), on_step=False, on_epoch=True)
                return values

            self.optimizers().step(losses)

    module = fit(Selecting())
    assert module.optimizer.num_samples == module.num_hooks == 8
    for kind in (Net, Ordinary):
        with pytest.raises(RuntimeError, match=r"self.optimizers\(\).step\(losses\)"):
            fit(kind(esam))


@pytest.mark.filterwarnings("ignore:Found `dataloader_iter` argument:UserWarning")
def test_what_cannot_be_repeated_is_refused() -> None:
    class Taking(Net):
        def training_step(self, dataloader_iter: Any) -> Any:
            batch, _, _ = next(dataloader_iter)
            return super().training_step(batch, 0)

    with pytest.raises(RuntimeError, match=r"training_step\(self, batch, batch_idx\)"):
        fit(Taking())

    class Scaler(torch.amp.GradScaler):
        pass

    with pytest.raises(RuntimeError, match=r"scaler=vsam\.amp\.GradScaler"):
        fit(Net(), plugins=MixedPrecision("16-mixed", "cpu", scaler=Scaler("cpu")))


def test_the_mixin_comes_first() -> None:
    with pytest.raises(TypeError, match=r"class Late\(SharpnessAwareModule, LightningModule\)"):

        class Late(LightningModule, SharpnessAwareModule):
            pass


def test_a_failed_second_pass_leaves_the_weights() -> None:
    class Failing(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.is_second_pass and batch_idx == 3:
                raise ValueError("not today")
            return super().training_step(batch, batch_idx)

    module = Failing()
    with pytest.raises(ValueError, match="not today"):
        fit(module)
    assert_same(module.network, by_hand(num_batches=3)[0])
    assert not module.is_second_pass


def test_training_steps_without_a_loss_are_left_out() -> None:
    class Sparse(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) if batch_idx % 4 == 1 else None

    with pytest.warns((UserWarning, RuntimeWarning)):
        module = fit(Sparse(), accumulate_grad_batches=2)
    assert module.optimizer.last.step == module.optimizer.num_samples == 2


def test_loggers_are_silent_in_the_second_pass(tmp_path: Path) -> None:
    class Direct(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.logger.log_metrics({"seen": batch_idx})
            assert len(self.loggers) == (0 if self.is_second_pass else 1)
            return super().training_step(batch, batch_idx)

    logger = CSVLogger(str(tmp_path))
    fit(Direct(), logger=logger, num_batches=3, log_every_n_steps=1)
    assert len(Path(logger.log_dir, "metrics.csv").read_text().splitlines()) == 4


def test_the_other_package_of_lightnings() -> None:
    class Other(SharpnessAwareModule, pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = nets.network()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return short_vsam(torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9), self)

    module = Other()
    trainer = pytorch_lightning.Trainer(**nets.SILENT, max_epochs=1, accumulate_grad_batches=2)
    trainer.fit(module, nets.loader())
    assert_same(module.network, by_hand(short_vsam, 2)[0])
