"""Train one run in its folder. The result is the same however often it is killed."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from vsam import StepRecord
from vsam.lab.checkpoint import load_checkpoint, save_checkpoint
from vsam.lab.data import Augment, Batch, Batches, Dataset, load
from vsam.lab.environment import describe_environment
from vsam.lab.errors import DamagedError, InUseError, RunError, UserError, is_out_of_memory
from vsam.lab.files import append, make_folder, write_atomically
from vsam.lab.interrupt import deferred_interrupt
from vsam.lab.jsonl import dump_lines
from vsam.lab.learner import Learner
from vsam.lab.methods import find_method
from vsam.lab.ranks import ALONE, Ranks
from vsam.lab.recipes.recipe import Recipe, canonical_settings
from vsam.lab.run import Run, check_settings, read_run
from vsam.lab.watch import MEASURED, make_watch, observe
from vsam.quantize import size_report

__all__ = ["Observer", "Trainer", "load_data"]

_NUMBERS = ("rate", "grad_norm", "psf_norm", "rise", "s", "change_var", "change_norm")
_PROGRESS = ("seconds", "best", "averaged_best", "skips_in_a_row", "metrics")
_MOST_SKIPS_IN_A_ROW = 10


def load_data(recipe: Recipe, data_dir: str | Path | None, device: torch.device) -> Dataset:
    """Load the recipe's images. Which ones are used and mislabelled does not depend on the run's seed."""
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


class Observer(Protocol):
    """Follows a run step by step, e.g. a log."""

    def step(self, step: int, numbers: Mapping[str, Any]) -> None:
        """A step was taken. Numbers that the method does not have are None."""

    def epoch(self, metrics: Mapping[str, Any]) -> None:
        """An epoch has ended."""

    def close(self) -> None:
        """The run is closed."""


class Trainer:
    """A run in training, advanced epoch by epoch.

    Everything that determines the result is in the recipe, and everything that changes is in the checkpoint. A run
    that is killed at any moment and resumed ends with the same weights, bit for bit.

    Args:
        recipe: what to train.
        path: the run's folder, locked until `close`.
        dataset: from `load_data`.
        device: where to train.
        ranks: the processes that train it together. The recipe's batch is their total. All hold everything that
            changes and the first writes the files, so a run can resume with another number of processes.

    `turn` may be set before an epoch: epochs of several runs with the same turn ran one after the other.
    `listeners` are called with the metrics of each epoch, `observers` are told of every step and epoch, and
    `before_step` is called with each batch and its epoch before training on it. They must change nothing.
    `metrics` are the lines of the epochs so far, and `summary` is empty until the run is finished.
    """

    def __init__(
        self, recipe: Recipe, path: Path, dataset: Dataset, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        find_method(recipe.method)
        self.recipe, self.path, self.dataset, self.device, self.ranks = recipe, path, dataset, device, ranks
        self.listeners: list[Callable[[dict[str, Any]], object]] = []
        self.observers: list[Observer] = []
        self.before_step: Callable[[Batch, int], object] = lambda batch, epoch: None
        self.turn: str | None = None
        shared: Any = {"channels_last": recipe.channels_last, "rank": ranks.rank, "size": ranks.size}
        augment = Augment(**recipe.augment.model_dump())
        self._train = Batches.train(dataset, batch_size=recipe.batch, seed=recipe.seed, augment=augment, **shared)
        self._test = Batches.test(dataset, **shared)
        self.steps_per_epoch = len(self._train)
        self.total_steps = recipe.epochs * self.steps_per_epoch
        self.step = self.skips_in_a_row = 0
        self.seconds = self.best = self.averaged_best = 0.0
        self.metrics: list[dict[str, Any]] = []
        self._sums = _Sums()
        self._paused = 0.0  # seconds spent measuring sharpness since the clock was read
        with _generators(None, device) as current, _enough_memory(recipe, device):
            torch.manual_seed(recipe.seed)
            self.learner = Learner(recipe, dataset, device, self.total_steps, ranks)
            self._states = current()
        self._watch = make_watch(recipe, self.learner.model, dataset)
        self._last_save = time.monotonic()
        self._files: _Files | None = None
        try:
            self.summary, metrics = ranks.from_first(self._open)
            if self.summary:
                self.step, self.metrics = self.total_steps, metrics
            else:
                self._resume()
        except BaseException:
            self.close()
            raise

    @property
    def is_finished(self) -> bool:
        """True if the run's summary is written."""
        return bool(self.summary)

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return self.step // self.steps_per_epoch

    def train_epoch(self, on_step: Callable[[int], object] = lambda step: None) -> None:
        """Train to the end of the current epoch, evaluate, and save. After the last one, write the summary.

        Ctrl-C and SIGTERM are raised after the current step, once it is saved.
        """
        with (
            _generators(self._states, self.device) as current,
            deferred_interrupt() as is_interrupted,
            _enough_memory(self.recipe, self.device),
        ):
            epoch, start = divmod(self.step, self.steps_per_epoch)
            turn = self.turn if start == 0 else None
            begun = time.perf_counter()
            for batch in self._train.epoch(epoch, start=start):
                self._train_step(batch, epoch)
                on_step(self.step)
                is_stopped = self.ranks.should_stop() or is_interrupted()
                is_due = is_stopped or time.monotonic() - self._last_save > self.recipe.checkpoint_seconds
                if is_due and self.step % self.steps_per_epoch:
                    self._stop_clock(begun)
                    self._save(current())
                    if is_stopped:
                        raise KeyboardInterrupt
                    begun = time.perf_counter()
            self._stop_clock(begun)
            self.ranks.check_equal(self.learner.model.parameters(), "weights")
            self.metrics.append(self._measure(epoch) | {"turn": turn})
            self._save(current())
        for listener in (*self.listeners, *(observer.epoch for observer in self.observers)):
            listener(self.metrics[-1])
        if self.step == self.total_steps:
            self._finish()

    def close(self) -> None:
        """Release the folder, the observers and the process group."""
        for observer in self.observers:
            observer.close()
        self.learner.release()
        if self._files:
            self._files.close()

    def _open(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        self._files = _Files(self.path, self.recipe)
        return self._files.found.summary, list(self._files.found.epochs)

    def _resume(self) -> None:
        """Restore the checkpoint, or start from scratch if there is none."""
        content = self.ranks.from_first(lambda: self._files.load(self) if self._files else None)
        if content is None:
            return
        try:
            self.learner.load_state_dict(content)
            self.step = content["step"]
            for name in _PROGRESS:
                setattr(self, name, type(getattr(self, name))(content["progress"][name]))
            if not 0 <= self.step <= self.total_steps or len(self.metrics) != self.epoch:
                raise ValueError(f"step {self.step} is not one of this run's {self.total_steps}.")
            self._sums = _Sums(**content["sums"])
            self._states = {name: content["generators"][name].cpu() for name in self._states}
            with _generators(self._states, self.device):  # fails now if these are not valid states
                pass
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise DamagedError(
                f"{self.path / 'checkpoint.pt'} does not fit this run: {error} Delete it, or choose another --out."
            ) from error
        if self.step == self.total_steps:  # killed between the last checkpoint and the summary
            self._finish()

    def _train_step(self, batch: Batch, epoch: int) -> None:
        self.ranks.seed(self.recipe.seed, self.step)
        self.before_step(batch, epoch)
        done = self.learner.step(batch, epoch, self.step)
        self.step += 1
        self._check(done.loss)
        self._sums.add(done.loss, done.logits, batch.labels)
        numbers = {name: getattr(done.record, name) for name in _NUMBERS} if done.record is not None else {}
        if self.observers:
            shown = {"loss": done.loss, "lr": self.learner.lr, "samples": self.learner.num_samples, **numbers}
            for observer in self.observers:
                observer.step(self.step, shown)
        if done.record is not None:
            self._check_skips(done.record)
            self._sums.rate += done.record.rate
            if done.record.sampled:
                self._add("steps.jsonl", {"step": self.step, "epoch": epoch, "loss": done.loss, **numbers})
        if self._watch is not None and self._watch.is_due(self.step):
            begun = time.perf_counter()
            line = observe(self._watch, self.step)
            self._add("sharpness.jsonl", {"epoch": epoch, **line})
            for observer in self.observers:
                observer.step(self.step, {name: line.get(name) for name in MEASURED})
            self._paused += time.perf_counter() - begun

    def _add(self, name: str, line: Mapping[str, Any]) -> None:
        if self._files:
            self._files.waiting[name] += json.dumps(line) + "\n"

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
            f"{why} at step {self.step} of {self.total_steps} with {recipe.ran} (lr {recipe.lr:g}, rho "
            f"{recipe.rho:g}). Try a smaller lr or rho, or bf16=false."
        )

    def _measure(self, epoch: int) -> dict[str, Any]:
        found = self.learner.measure(self._test)
        self._check(found["test_loss"])
        self.best = max(self.best, found["test_accuracy"])
        self.averaged_best = max(self.averaged_best, found.get("averaged_accuracy", 0.0))
        count = len(self.dataset.train_images)
        sums, self._sums = self._sums, _Sums()
        return {
            "epoch": epoch,
            "step": self.step,
            "train_loss": sums.loss / count,
            "train_accuracy": 100 * sums.correct / count,
            **found,
            "lr": self.learner.lr,
            "samples": self.learner.num_samples,
            "skipped": self.learner.num_skipped,
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
        self._sums.seconds += elapsed

    def _save(self, states: dict[str, Tensor]) -> None:
        self._states = states
        if self._files:
            content = {
                "recipe": self.recipe.model_dump(),
                **self.learner.state_dict(),
                "step": self.step,
                "progress": {name: getattr(self, name) for name in _PROGRESS},
                "sums": asdict(self._sums),
                "generators": states,
            }
            self._files.save(content)
        self._last_save = time.monotonic()

    def _finish(self) -> None:
        """Write the summary after the last epoch. A run without a single finite sample has none."""
        if 0 < self.learner.num_samples <= self.skips_in_a_row:
            self._stop_for_skips()
        self.summary = self._summarise()
        if self._files:
            write_atomically(self.path / "summary.json", json.dumps(self.summary, indent=2) + "\n")

    def _summarise(self) -> dict[str, Any]:
        recipe, dataset, num_train, last = self.recipe, self.dataset, len(self.dataset.train_images), self.metrics[-1]
        more: dict[str, Any] = {}
        if recipe.average is not None:
            more |= {"averaged_accuracy": last["averaged_accuracy"], "averaged_best": self.averaged_best}
        if recipe.quantize is not None:
            sizes = size_report(self.learner.model)
            more |= {"full_bytes": sizes.full_bytes, "quantized_bytes": sizes.quantized_bytes}
        return {
            "recipe": recipe.name,
            "data": dataset.name,
            "model": recipe.model,
            "method": recipe.ran,
            "label": recipe.label,
            "seed": recipe.seed,
            "epochs": recipe.epochs,
            "steps": self.total_steps,
            "accuracy": last["test_accuracy"],
            "best": self.best,
            **more,
            "samples": self.learner.num_samples,
            "cost": self.learner.cost,
            "skipped": self.learner.num_skipped,
            "ais": num_train * recipe.epochs / self.seconds,
            "seconds": self.seconds,
            "ranks": self.ranks.size,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "parameters": self.learner.num_parameters,
            "train_images": num_train,
            "available_images": dataset.num_available or num_train,
            "test_images": len(dataset.test_images),
            "split": dataset.split,
            "role": recipe.role,
            "environment": describe_environment(self.device),
        }


class _Files:
    """The files of a run in training, locked until `close`. The system releases the lock of a killed process.

    The checkpoint is the only truth while the run is unfinished. It names the lengths of the other files, which are
    on disk before it is, and contains the lines of `metrics.jsonl`.
    """

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self._path, self._recipe = path, recipe
        self.waiting = {"steps.jsonl": "", **({"sharpness.jsonl": ""} if recipe.sharpness else {})}
        self._lengths = dict.fromkeys(self.waiting, 0)
        self._lock = FileLock(path / ".lock", timeout=0)
        try:
            make_folder(path)
            self._lock.acquire()
        except Timeout as error:
            text = f"{path} is in use by another process. Wait for it, or choose another --out."
            raise InUseError(text) from error
        except OSError as error:
            text = f"{path} cannot be locked: {error.strerror}. Choose another folder with --out."
            raise UserError(text) from error
        try:
            for name in ("config.toml", "metrics.jsonl", "checkpoint.pt", "summary.json"):
                for left in path.glob(f".{name}.*"):  # half written by a killed process
                    left.unlink(missing_ok=True)
            self.found: Run = read_run(path)
            check_settings(self.found, recipe)
            if self.found.state == "new":
                write_atomically(path / "config.toml", recipe.to_toml())
        except BaseException:
            self.close()
            raise

    def load(self, run: Trainer) -> dict[str, Any] | None:
        """Read the checkpoint, and bring the other files to its state. Without one, to that of a new run."""
        path, content = self._path / "checkpoint.pt", None
        if path.exists():
            # Each process moves the tensors that the first has read to its own device.
            content = load_checkpoint(path, run.device if run.ranks.size == 1 else "cpu")
            if canonical_settings(content.get("recipe")) != canonical_settings(self._recipe.model_dump()):
                raise DamagedError(f"{path} belongs to a run with other settings. Delete it, or choose another --out.")
        try:
            metrics = content["progress"]["metrics"] if content else []
            for name in self._lengths:
                self._cut(name, content["lengths"][name] if content else 0)
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{path} does not fit this run. Delete it, or choose another --out.") from error
        if metrics or (self._path / "metrics.jsonl").exists():
            write_atomically(self._path / "metrics.jsonl", dump_lines(metrics))
        return content

    def save(self, content: dict[str, Any]) -> None:
        """Append the waiting lines, write the checkpoint, then the metrics that it contains."""
        for name, text in self.waiting.items():
            path = self._path / name
            try:
                append(path, text)
            except OSError as error:
                raise RunError(
                    f"{path} could not be written: {error.strerror}. Free some space and rerun the same command to "
                    "resume from the last checkpoint."
                ) from error
            self.waiting[name] = ""
            self._lengths[name] += len(text)
        save_checkpoint(self._path / "checkpoint.pt", {**content, "lengths": dict(self._lengths)})
        write_atomically(self._path / "metrics.jsonl", dump_lines(content["progress"]["metrics"]))

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()

    def _cut(self, name: str, length: int) -> None:
        """Drop lines that a killed process wrote after its last checkpoint."""
        path = self._path / name
        size = path.stat().st_size if path.exists() else 0
        if size < length:
            raise DamagedError(
                f"{path} has only {size:,} of the {length:,} bytes it had at the last checkpoint. Restore it, or "
                f"delete {self._path} to retrain the run."
            )
        if size > length:
            os.truncate(path, length)
        self._lengths[name] = length


@dataclass
class _Sums:
    """Running totals of an epoch."""

    loss: float = 0.0
    correct: int = 0
    rate: float = 0.0
    seconds: float = 0.0

    def add(self, loss: float, logits: Tensor, labels: Tensor) -> None:
        """Count a batch."""
        self.loss += loss * len(labels)
        self.correct += int((logits.argmax(1) == labels).sum())


@contextmanager
def _generators(states: dict[str, Tensor] | None, device: torch.device) -> Iterator[Callable[[], dict[str, Tensor]]]:
    """Use these states of the global generators within the block. Yields a function that reads them."""
    is_cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if is_cuda else []):
        if states is not None:
            torch.set_rng_state(states["cpu"])
            if is_cuda:
                torch.cuda.set_rng_state(states["cuda"], device)

        def current() -> dict[str, Tensor]:
            cuda = {"cuda": torch.cuda.get_rng_state(device)} if is_cuda else {}
            return {"cpu": torch.get_rng_state(), **cuda}

        yield current


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
