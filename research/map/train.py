"""Train and measure one run."""

import copy
import math
import time
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

import vsam
from research.map.models import build
from research.map.plan import Run, Setting
from research.map.sentences import MiniLM, Sentences
from vsam.lab.data import Augment, Batches, Dataset, load
from vsam.lab.learner import evaluate

__all__ = ["Images", "round_to_4_bits", "train", "wrap"]

CPU = torch.device("cpu")


@cache
def _load(name: str, data_dir: str | None) -> Dataset:
    return load(name, data_dir)


class Images:
    """The images of a run.

    Args:
        setting: which ones, and how they are batched.
        seed: of the subset, the wrong labels, the order and the augmentation.
        data_dir: dataset directory.
    """

    def __init__(self, setting: Setting, seed: int, data_dir: str | None) -> None:
        everything = _load(setting.data, data_dir)
        clean = everything.held_out(train=setting.train, test=setting.held_out, seed=seed)
        self.num_classes, self.num_channels = clean.num_classes, clean.image_shape[0]
        self.right_labels = clean.train_labels
        own = clean.noisy(setting.noise, seed)
        self.labels = own.train_labels
        augment = Augment(padding=4, flip=0.5, cutout=0) if setting.augment else None
        shared: dict[str, Any] = {"channels_last": setting.model != "vit"}
        self.train = Batches.train(own, batch_size=setting.batch, augment=augment, seed=seed, **shared)
        self.held_out = Batches.test(own, **shared)
        self.test = Batches.test(everything.subset(test=setting.test), **shared)
        self.again = Batches(own.train_images, own.train_labels, mean=own.mean, std=own.std, batch_size=512, **shared)


def wrap(method: str, base: torch.optim.Optimizer, model: nn.Module, rho: float, steps: int) -> torch.optim.Optimizer:
    """Return the optimizer of a method around the base."""
    match method:
        case "base":
            return base
        case "sam":
            return vsam.SAM(base, model=model, rho=rho)
        case "vsam-budget":
            return vsam.VSAM(base, model=model, rho=rho, budget=0.2)
        case "sam-late":
            return vsam.SAM(base, model=model, rho=rho, last=0.2, total_steps=steps)
        case "msam-adaptive":
            return vsam.MSAM(base, model=model, rho=rho, adaptive=True)
    raise ValueError(f"The plan has no method {method!r}.")


def train(setting: Setting, run: Run, data_dir: str | None = None) -> dict[str, Any]:
    """Return the measurements of a run. A tuning run is not measured on test images.

    Args:
        setting: the network and its data.
        run: method, seed and hyperparameters.
        data_dir: dataset directory.
    """
    images: Any = (Sentences if setting.data == "film-sentences" else Images)(setting, run.seed, data_dir)
    torch.manual_seed(run.seed)
    model = build(setting.model, images.num_classes, images.num_channels)
    if images.train.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps = run.epochs * len(images.train)
    optimizer = _optimizer(setting, run, model, steps)
    averages = [_average(model, horizon * steps) for horizon in run.horizons]
    is_confirming = run.phase == "confirm"
    when = {round(run.epochs * (i + 1) / setting.curve) for i in range(setting.curve)} if is_confirming else set()
    curve: list[dict[str, Any]] = []
    best: tuple[dict[str, Any], dict[str, Tensor]] | None = None
    step, seconds, cpu_seconds, loss_sum = 0, 0.0, 0.0, 0.0
    for epoch in range(run.epochs):
        model.train()
        loss_sum = 0.0
        begun, cpu_begun = time.perf_counter(), time.process_time()
        for inputs, labels, _ in images.train.epoch(epoch):
            for group in optimizer.param_groups:
                group["lr"] = run.lr * 0.5 * (1 + math.cos(math.pi * step / steps))
            loss_sum += _step(model, optimizer, inputs, labels) * len(labels)
            step += 1
            paused, cpu_paused = time.perf_counter(), time.process_time()
            for average in averages:
                average.update_parameters(model)
            begun += time.perf_counter() - paused
            cpu_begun += time.process_time() - cpu_paused
        seconds += time.perf_counter() - begun
        cpu_seconds += time.process_time() - cpu_begun
        if not math.isfinite(loss_sum):  # measured as it is, at chance
            break
        if epoch + 1 in when and epoch + 1 < run.epochs:
            curve.append({"epoch": epoch + 1, "train_loss": loss_sum / setting.train, **_held_out(model, images)})
            if best is None or curve[-1]["held_out_accuracy"] > best[0]["held_out_accuracy"]:
                best = curve[-1], copy.deepcopy(model.state_dict())
    last = {"epoch": run.epochs, "train_loss": _finite(loss_sum / setting.train), **_held_out(model, images)}
    found: dict[str, Any] = {
        "held_out_accuracy": last["held_out_accuracy"],
        "held_out_loss": last["held_out_loss"],
        "averages": [
            {"horizon": horizon, **_held_out(average.module, images)}
            for horizon, average in zip(run.horizons, averages, strict=True)
        ],
        "passes": optimizer.cost if isinstance(optimizer, vsam.SharpnessAware) else 1.0,
        "steps": step,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
    }
    if not is_confirming:
        return found
    found |= {"curve": [*curve, last], "train": _memorised(model, images), **_test(model, images)}
    for row, average in zip(found["averages"], averages, strict=True):
        row |= _test(average.module, images)
    if best is not None and best[0]["held_out_accuracy"] >= last["held_out_accuracy"]:  # the earlier of two equal ones
        model.load_state_dict(best[1])
        found["early"] = {"epoch": best[0]["epoch"], **_test(model, images)}
    else:
        found["early"] = {"epoch": run.epochs, **{key: found[key] for key in ("accuracy", "loss", "four_bits")}}
    return found


def round_to_4_bits(model: nn.Module) -> nn.Module:
    """Return a copy whose convolutions and linear layers have weights rounded to 4 bits per output channel."""
    rounded = copy.deepcopy(model)
    if isinstance(rounded, MiniLM):
        rounded.merged()
    with torch.no_grad():
        for module in rounded.modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.MultiheadAttention):
                weight = module.in_proj_weight if isinstance(module, nn.MultiheadAttention) else module.weight
                size = weight.abs().amax(tuple(range(1, weight.dim())), keepdim=True).clamp_min(1e-12) / 7
                weight.copy_((weight / size).round() * size)
    return rounded


def _optimizer(setting: Setting, run: Run, model: nn.Module, steps: int) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if setting.base == "sgd":
        base: torch.optim.Optimizer = torch.optim.SGD(trained, lr=run.lr, momentum=0.9, weight_decay=run.weight_decay)
    else:
        base = torch.optim.AdamW(trained, lr=run.lr, weight_decay=run.weight_decay)
    return wrap(run.method, base, model, run.rho, steps)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> float:
    """Take a step and return the first pass's loss."""

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    loss: Any = optimizer.step(closure)  # type: ignore[arg-type]
    return float(loss.detach())


def _average(model: nn.Module, num_steps: float) -> AveragedModel:
    """Return an average of the weights and buffers over about the last `num_steps` steps."""
    rate = min(1.0, 1 / num_steps)

    def update_ema(average: Tensor, value: Tensor, _: Tensor | int) -> Tensor:
        return torch.lerp(average, value, rate) if value.is_floating_point() else value

    return AveragedModel(model, avg_fn=update_ema, use_buffers=True)


def _held_out(model: nn.Module, images: Any) -> dict[str, Any]:
    accuracy, loss = evaluate(model, images.held_out, CPU)
    return {"held_out_accuracy": round(accuracy, 4), "held_out_loss": _finite(loss)}


def _test(model: nn.Module, images: Any) -> dict[str, Any]:
    accuracy, loss = evaluate(model, images.test, CPU)
    rounded, _ = evaluate(round_to_4_bits(model), images.test, CPU)
    return {"accuracy": round(accuracy, 4), "loss": _finite(loss), "four_bits": round(rounded, 4)}


@torch.no_grad()
def _memorised(model: nn.Module, images: Any) -> dict[str, Any]:
    """Return training accuracy on the labels trained on, on the right ones, and the fraction of wrong ones learned."""
    model.eval()
    predicted = torch.empty_like(images.labels)
    for inputs, _, indices in images.again:
        predicted[indices] = model(inputs).argmax(1)
    is_wrong = images.labels != images.right_labels
    return {
        "accuracy": _percent(predicted == images.labels),
        "right_accuracy": _percent(predicted == images.right_labels),
        "memorised": _percent((predicted == images.labels)[is_wrong]) if is_wrong.any() else None,
    }


def _finite(loss: float) -> float | None:
    return round(loss, 6) if math.isfinite(loss) else None


def _percent(values: Tensor) -> float:
    return round(100 * float(values.double().mean()), 4)
