"""A run, trained epoch by epoch in its folder; its result is the same however often it is killed."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from vsam import StepRecord
from vsam.lab.data import Augment, Batch, Batches, Dataset, load
from vsam.lab.errors import RunError, is_out_of_memory
from vsam.lab.interrupt import deferred_interrupt
from vsam.lab.methods import find_method
from vsam.lab.ranks import ALONE, Ranks
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.folder import open_folder
from vsam.lab.runs.generators import own_generators
from vsam.lab.runs.network import evaluate
from vsam.lab.runs.resume import resume, save
from vsam.lab.runs.summary import summarise
from vsam.lab.runs.training import Training
from vsam.lab.runs.watched import MEASURED, make_watch, observe

__all__ = ["Observer", "Run", "load_data"]

_NUMBERS = ("rate", "grad_norm", "psf_norm", "s", "change_var", "change_norm")
_MOST_SKIPS_IN_A_ROW = 10
OnStep = Callable[[int], object]


def load_data(recipe: Recipe, data_dir: str | Path | None, device: torch.device) -> Dataset:
    """The recipe's images on the device; which ones are used and mislabelled does not depend on the run's seed."""
    settings = recipe.data
    dataset = load(settings.name, data_dir, size=settings.size, grey=settings.grey)
    if settings.held_out:
        assert settings.train is not None
        assert settings.test is not None
        dataset = dataset.held_out(train=settings.train, test=settings.test)
    else:
        dataset = dataset.subset(train=settings.train, test=settings.test)
    with _enough_memory(recipe, device):
        return dataset.noisy(settings.noise).to(device) if settings.noise else dataset.to(device)


@contextmanager
def _enough_memory(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Explain that a GPU or the machine is out of memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(
            f"Out of memory on {device} for {recipe.method} with {recipe.model} and batches of "
            f"{recipe.batch:,}: use a smaller batch or network, or another --device."
        ) from error


class Observer(Protocol):
    """Follows a run step by step, e.g. a log."""

    def step(self, step: int, numbers: Mapping[str, Any]) -> None:
        """A step was taken; numbers that the method does not have are None."""

    def epoch(self, metrics: Mapping[str, Any]) -> None:
        """An epoch has ended."""

    def close(self) -> None:
        """The run is closed."""


class Run:
    """One run in its folder, advanced epoch by epoch.

    Everything that determines the result is in the recipe, and everything that changes is in the checkpoint: a run
    killed at any moment and resumed ends with the same weights, bit for bit.

    Args:
        recipe: what to train.
        path: the run's folder.
        dataset: as `load_data` gives it.
        device: where to train.
        listeners: called with a dictionary of metrics after each epoch.
        ranks: the processes that train it together; the recipe's batch is their total. All hold everything that
            changes, and the first writes the files, so the run can resume with another number of processes.

    `turn` may be set before an epoch: epochs of several runs with the same turn ran one after the other.
    `observers` are told of every step and epoch, and closed with the run. `before_step` is called with each batch and
    its epoch before training on it, and must change nothing. `generators` are the states of the global generators
    between epochs, and `sums` the running totals of the current one.
    """

    def __init__(
        self,
        recipe: Recipe,
        path: Path,
        dataset: Dataset,
        device: torch.device,
        listeners: tuple[Callable[[dict[str, Any]], object], ...] = (),
        ranks: Ranks = ALONE,
    ) -> None:
        find_method(recipe.method)
        self.recipe, self.device, self.listeners, self.ranks = recipe, device, listeners, ranks
        self.observers: list[Observer] = []
        self.before_step: Callable[[Batch, int], object] = lambda batch, epoch: None
        self.dataset = dataset
        augment = Augment(**recipe.augment.model_dump())
        shared: Any = {"channels_last": recipe.channels_last, "rank": ranks.rank, "size": ranks.size}
        self._train = Batches.train(dataset, batch_size=recipe.batch, seed=recipe.seed, augment=augment, **shared)
        self._test = Batches.test(dataset, **shared)
        self.steps_per_epoch = len(self._train)
        self.total_steps = recipe.epochs * self.steps_per_epoch
        self.step = self.skips_in_a_row = 0
        self.seconds = self.best = 0.0
        self.sums = Sums()
        self._paused = 0.0  # seconds spent measuring sharpness since the clock was read
        self.turn: str | None = None
        with own_generators(None, device) as end, _enough_memory(recipe, device):
            torch.manual_seed(recipe.seed)
            self.training = Training(recipe, dataset, device, self.total_steps, ranks)
            self.generators = end()
        self._watch = make_watch(recipe, self.training.model, dataset)
        self.folder = open_folder(path, recipe, ranks)
        self._last_save = time.monotonic()
        try:
            if self.folder.summary is None:
                resume(self)
            else:
                self.step = self.total_steps
        except BaseException:
            self.folder.close()
            raise

    @property
    def is_finished(self) -> bool:
        """Whether the run's summary is written."""
        return self.folder.summary is not None

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return self.step // self.steps_per_epoch

    def train_epoch(self, on_step: OnStep = lambda step: None) -> None:
        """Train to the end of the current epoch, evaluate, and save; after the last one, write the summary.

        Ctrl-C and SIGTERM are raised after the current step, once it is saved.
        """
        with (
            own_generators(self.generators, self.device) as current,
            deferred_interrupt() as is_interrupted,
            _enough_memory(self.recipe, self.device),
        ):
            epoch = self.epoch
            turn = self.turn if self.step % self.steps_per_epoch == 0 else None
            begun = time.perf_counter()
            for batch in self._train.epoch(epoch, start=self.step % self.steps_per_epoch):
                self._train_step(batch, epoch)
                on_step(self.step)
                is_last = self.step % self.steps_per_epoch == 0
                is_stopped = self.ranks.should_stop() or is_interrupted()
                is_due = is_stopped or time.monotonic() - self._last_save > self.recipe.checkpoint_seconds
                if is_due and not is_last:
                    self._stop_clock(begun)
                    self._save(current())
                    if is_stopped:
                        raise KeyboardInterrupt
                    begun = time.perf_counter()
            self._stop_clock(begun)
            self.ranks.check_equal(self.training.model.parameters(), "weights")
            metrics = self._measure(epoch) | {"turn": turn}
            self.folder.add_line("metrics.jsonl", metrics)
            self._save(current())
        for listener in (*self.listeners, *(observer.epoch for observer in self.observers)):
            listener(metrics)
        if self.step == self.total_steps:
            self.finish(metrics)

    def finish(self, metrics: dict[str, Any]) -> None:
        """Write the summary after the last epoch; a run without a single finite sample has none."""
        if 0 < self.training.num_samples <= self.skips_in_a_row:
            self._stop_for_skips()
        self.folder.finish(summarise(self, metrics))

    def close(self) -> None:
        """Release the folder and the process group."""
        for observer in self.observers:
            observer.close()
        self.training.release()
        self.folder.close()

    def _train_step(self, batch: Batch, epoch: int) -> None:
        self.ranks.seed(self.recipe.seed, self.step)
        self.before_step(batch, epoch)
        done = self.training.step(batch, epoch, self.step)
        self.step += 1
        self._check(done.loss)
        self.sums.add(done.loss, done.logits, batch.labels)
        if self.observers:
            self._tell(done.loss, done.record)
        if done.record is not None:
            self._check_skips(done.record)
            self.sums.rate += done.record.rate
            if done.record.sampled:
                numbers = {name: getattr(done.record, name) for name in _NUMBERS}
                self.folder.add_line("steps.jsonl", {"step": self.step, "epoch": epoch, "loss": done.loss, **numbers})

        if self._watch is not None and self._watch.is_due(self.step):
            self._look(epoch)

    def _look(self, epoch: int) -> None:
        """Measure sharpness, with the training clock stopped."""
        assert self._watch is not None
        begun = time.perf_counter()
        line = observe(self._watch, self.step)
        self.folder.add_line("sharpness.jsonl", {"epoch": epoch, **line})
        for observer in self.observers:
            observer.step(self.step, {name: line.get(name) for name in MEASURED})
        self._paused += time.perf_counter() - begun

    def _tell(self, loss: float, record: StepRecord | None) -> None:
        lr = self.training.optimizer.param_groups[0]["lr"]
        numbers = {"loss": loss, "lr": lr, "samples": self.training.num_samples}
        numbers |= {name: getattr(record, name) for name in _NUMBERS} if record is not None else {}
        for observer in self.observers:
            observer.step(self.step, numbers)

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            self._stop(f"The loss is {loss}")

    def _check_skips(self, record: StepRecord) -> None:
        if record.skipped:
            self.skips_in_a_row += 1
        elif record.sampled:
            self.skips_in_a_row = 0
        if self.skips_in_a_row >= _MOST_SKIPS_IN_A_ROW:
            self._stop_for_skips()

    def _stop_for_skips(self) -> NoReturn:
        self._stop(f"The last {self.skips_in_a_row} second gradients were not finite and their steps were skipped,")

    def _stop(self, why: str) -> NoReturn:
        recipe = self.recipe
        raise RunError(
            f"{why} at step {self.step} of {self.total_steps} with {recipe.method} (lr {recipe.lr:g}, rho "
            f"{recipe.rho:g}). Try a smaller lr or rho, or bf16=false."
        )

    def _measure(self, epoch: int) -> dict[str, Any]:
        count = len(self.dataset.train_images)
        accuracy, test_loss = evaluate(self.training.forward, self._test, self.device, self.recipe.bf16, self.ranks)
        self._check(test_loss)
        self.best = max(self.best, accuracy)
        sums, self.sums = self.sums, Sums()
        return {
            "epoch": epoch,
            "step": self.step,
            "train_loss": sums.loss / count,
            "train_accuracy": 100 * sums.correct / count,
            "test_loss": test_loss,
            "test_accuracy": accuracy,
            "lr": self.training.optimizer.param_groups[0]["lr"],
            "samples": self.training.num_samples,
            "skipped": self.training.num_skipped,
            "rate": sums.rate / self.steps_per_epoch,
            "seconds": sums.seconds,
            "ais": count / sums.seconds,
            "ranks": self.ranks.size,
        }

    def _stop_clock(self, begun: float) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elapsed, self._paused = time.perf_counter() - begun - self._paused, 0.0
        self.seconds += elapsed
        self.sums.seconds += elapsed

    def _save(self, generators: dict[str, Tensor]) -> None:
        self.generators = generators
        save(self)
        self._last_save = time.monotonic()


@dataclass
class Sums:
    """Running totals of an epoch."""

    loss: float = 0.0
    correct: int = 0
    rate: float = 0.0
    seconds: float = 0.0

    def add(self, loss: float, logits: Tensor, labels: Tensor) -> None:
        """Count a batch."""
        self.loss += loss * len(labels)
        self.correct += int((logits.argmax(1) == labels).sum())
