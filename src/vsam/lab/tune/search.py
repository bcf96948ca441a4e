"""The search: Optuna asks for trials, each of which is trained, pruned if it lags behind, and told back."""

import hashlib
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from optuna import Study, Trial, create_study
from optuna.distributions import BaseDistribution
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.pruners import MedianPruner
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from vsam.lab.compare import count_steps
from vsam.lab.data import Dataset
from vsam.lab.environment import describe_environment
from vsam.lab.errors import DamagedError, InUseError, RunError, UserError
from vsam.lab.files import make_folder
from vsam.lab.interrupt import deferred_interrupt
from vsam.lab.progress import Shown
from vsam.lab.recipes.recipe import Recipe, canonical_settings
from vsam.lab.run import flat
from vsam.lab.statistics import mean
from vsam.lab.tensorboard import Observe
from vsam.lab.train import Trainer
from vsam.lab.tune.space import Range, Value, change, own_values

__all__ = ["Search", "make_pruner"]

_log = logging.getLogger(__name__)
_PATIENCE = 60  # seconds to wait for another process to release an SQLite file
_NUM_RETRIES = 2
_NUM_RANDOM = 10  # trials before the sampler uses results
_HEARTBEAT, _SILENCE = 60, 3600  # seconds between signs of life, and without one until another machine takes over


def make_pruner(epochs: int) -> MedianPruner:
    """Prune a trial in the last third of its epochs if it never was as good as the median of the completed ones.

    Not earlier, and not by successive halving: under a cosine schedule, the ranking of runs before two thirds of their
    epochs says next to nothing about the final one (docs/tuning.md has the numbers), and a large rho starts slowly.
    """
    return MedianPruner(n_startup_trials=5, n_warmup_steps=-(-2 * epochs // 3))


class Search:
    """A search in its folder, locked until `close`.

    An interrupted trial keeps its number and settings, and its runs resume from their checkpoints. The settings of a
    trial depend on the recipe's seed, its number and earlier results alone, so a resumed search tries the same ones.

    Args:
        recipe: what every trial trains, except for the searched settings. Its seed is also the search's.
        space: the searched settings.
        seeds: runs per trial, at least 1. Their mean counts.
        folder: of the search. Trials train below it.
        dataset: from `hold_out`.
        device: to train on.
        storage: URL of a database that several folders share, or None for a file in the folder.
        observe: called with every run before it trains.
    """

    def __init__(
        self,
        recipe: Recipe,
        space: Sequence[Range],
        seeds: int,
        folder: Path,
        dataset: Dataset,
        device: torch.device,
        storage: str | None = None,
        observe: Observe = lambda run: None,
    ) -> None:
        self.recipe, self.space, self.seeds, self.folder = recipe, tuple(space), seeds, folder
        self.dataset, self.device = dataset, device
        self._url, self._observe, self._steps = storage, observe, count_steps(recipe, dataset)
        make_folder(folder)
        self._lock = FileLock(folder / ".lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise InUseError(
                f"{folder} is in use by another process. Wait for it, or share the search: --storage URL, and a "
                "folder for each process with --out."
            ) from error
        try:
            with _storage_errors(storage):
                self._place, self._turn = self._read_place(), _turn(storage)
                self._storage, self.study = self._open_patiently()
                self._give_back()
        except BaseException:
            self.close()
            raise

    def run(self, trials: int, progress: Shown, deadline: float | None = None) -> int:
        """Train until the search has so many trials, and return how many were trained here.

        Args:
            trials: total number, whoever trains them.
            progress: shows the runs.
            deadline: on the `time.monotonic` clock. After it, the search stops at the end of an epoch.
        """
        num_trained = 0
        with deferred_interrupt() as is_interrupted, _storage_errors(self._url):

            def is_over() -> bool:
                return is_interrupted() or (deadline is not None and time.monotonic() > deadline)

            known = max(trials, len(self.trials()))
            done = [self._steps * trial.state.is_finished() for trial in self.trials()] + known * [0]
            names = [(f"trial {number}", seed) for number in range(known) for seed in self._seeds()]
            progress.begin([(*name, done[place // self.seeds], self._steps) for place, name in enumerate(names)])
            self._clear_away()
            while not is_over() and (trial := self._ask(trials)) is not None:
                try:
                    with suppress(UpdateFinishedTrialError):  # another machine has taken it over and finished it
                        self._train(trial, progress if trial.number < known else None, is_over)
                    num_trained += 1
                finally:
                    self._give_back()
                self._clear_away()
        return num_trained

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number."""
        return self.study.get_trials(deepcopy=False)

    def values(self, trial: FrozenTrial) -> dict[str, Value]:
        """Return a trial's settings as its recipe states them."""
        return {one.key: one.tidy(trial.params[one.key]) for one in self.space if one.key in trial.params}

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()

    def _seeds(self) -> range:
        return range(self.recipe.seed, self.recipe.seed + self.seeds)

    def _read_place(self) -> str:
        """Return the folder's random name, by which its trials are known in a shared database."""
        path = self.folder / "place"
        if not path.exists():
            path.write_text(secrets.token_hex(8))
        return path.read_text()

    def _open_patiently(self) -> tuple[RDBStorage, Study]:
        """Try again if another machine creates the tables right now."""
        for _ in range(_NUM_RETRIES):
            try:
                return self._open()
            except ArgumentError:
                raise
            except (SQLAlchemyError, StorageInternalError):
                time.sleep(1)
        return self._open()

    def _open(self) -> tuple[RDBStorage, Study]:
        """Open the database. Its study must be this search."""
        settings = {
            "recipe": canonical_settings(self.recipe.model_dump()),
            "search": ",".join(map(str, self.space)),
            "seeds": self.seeds,
        }
        name = "search"
        if self._url is not None:  # which may have many searches
            digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
            name = f"{self.recipe.name}-{self.recipe.label}-{digest[:12]}"
        path = str(self.folder.absolute() / "study.db")
        engine: dict[str, Any] = {"pool_pre_ping": True}
        if self._url is None:  # not by URL: versions of SQLAlchemy parse a path with % or ? differently
            engine = {"poolclass": NullPool, "creator": lambda: sqlite3.connect(path, timeout=_PATIENCE)}
        elif self._url.startswith("sqlite"):
            engine = {"poolclass": NullPool, "connect_args": {"timeout": _PATIENCE}}
        storage = RDBStorage(self._url or "sqlite:///study.db", engine)
        pruner = make_pruner(self.recipe.epochs)
        study = create_study(storage=storage, study_name=name, pruner=pruner, direction="maximize", load_if_exists=True)
        with self._turn:
            if "settings" not in study.user_attrs:
                if own := own_values(self.recipe, self.space):
                    study.enqueue_trial(own, skip_if_exists=True)
                study.set_user_attr("settings", settings)  # last: a search that is killed before begins again
        begun = study.user_attrs["settings"]
        if begun != json.loads(json.dumps(settings)):
            old, new = flat(begun), flat(settings)
            keys = [key for key in old | new if old.get(key) != new.get(key)]
            wrong = ", ".join(f"{key.removeprefix('recipe.')} {old.get(key)} instead of {new.get(key)}" for key in keys)
            raise UserError(
                f"{self.folder} has another search ({wrong}). Give the same settings to resume it, or choose another "
                "folder with --out."
            )
        return storage, study

    def _ask(self, trials: int) -> Trial | None:
        """Return the next trial: one that waits, else a new one, else None."""
        with self._turn:
            self._give_back()
            return self._draw(trials)

    def _draw(self, trials: int) -> Trial | None:
        everything = self.trials()
        waiting = [trial.number for trial in everything if trial.state == TrialState.WAITING]
        if not waiting and len(everything) >= trials:
            return None
        number = waiting[0] if waiting else len(everything)
        self.study.sampler = _Sampler(f"{self.recipe.seed} {number}")
        trial = self.study.ask({one.key: one.distribution for one in self.space})
        self._give_sign(trial)
        return trial

    def _give_sign(self, trial: Trial) -> None:
        """Tell other machines that the trial is being trained here."""
        trial.set_user_attr("sign", {"place": self._place, "time": time.time()})

    def _is_ours(self, trial: Trial) -> bool:
        """Return False if another machine has taken the trial over, after this one was silent for an hour."""
        frozen = self._frozen(trial)
        sign = frozen.user_attrs.get("sign")
        return frozen.state == TrialState.RUNNING and sign is not None and sign["place"] == self._place

    def _train(self, trial: Trial, progress: Shown | None, is_over: Any) -> None:
        """Train a trial and tell Optuna. A failed one is told as pruned, so that the sampler avoids its settings."""
        facts: dict[str, Any] = {"device": describe_environment(self.device)["device"]}
        state = TrialState.PRUNED
        with ExitStack() as opened:
            runs: list[Trainer] = []
            try:
                values = self.values(self._frozen(trial))
                for seed in self._seeds():
                    recipe = change(self.recipe, values, name=f"{self.recipe.name}-tune", seed=seed, role="trial")
                    path = self._path(trial.number) / f"seed-{seed}"
                    runs.append(opened.enter_context(closing(Trainer(recipe, path, self.dataset, self.device))))
                    self._observe(runs[-1])
                while True:
                    if not self._is_ours(trial):
                        return
                    epochs = self._report(trial, runs)
                    if len(epochs) == self.recipe.epochs or trial.should_prune():
                        break
                    if is_over():
                        return
                    for run in runs:
                        if run.epoch == len(epochs):
                            self._train_epoch(trial, run, progress)
                state = TrialState.COMPLETE if len(epochs) == self.recipe.epochs else state
                last = epochs[-1]
                facts |= {"loss": mean(line["test_loss"] for line in last), "steps": last[0]["step"]}
                facts |= {"samples": mean(line["samples"] for line in last)}
                facts |= {"seconds": sum(line["seconds"] for lines in epochs for line in lines)}
            except (RunError, torch.OutOfMemoryError, MemoryError) as error:
                if isinstance(error, DamagedError) or isinstance(error.__cause__, OSError):
                    raise  # a full disk is not the fault of the settings
                facts |= {"error": str(error) or type(error).__name__}
        with self._turn:
            if not self._is_ours(trial):
                return
            trial.set_user_attr("facts", facts)
            accuracy = self._frozen(trial).intermediate_values.get(self.recipe.epochs)
            self.study.tell(trial, accuracy if state == TrialState.COMPLETE else None, state)
            settings = ", ".join(f"{key}={value:g}" for key, value in self.values(self._frozen(trial)).items())
            _log.info("trial %d %s: %s", trial.number, facts.get("error", state.name.lower()), settings)

    def _report(self, trial: Trial, runs: Sequence[Trainer]) -> list[tuple[dict[str, Any], ...]]:
        """Report the mean accuracies of the epochs that all runs have completed, and return their metrics."""
        if any(len(run.metrics) != run.epoch for run in runs):
            raise DamagedError(f"metrics.jsonl is incomplete. Delete {self._path(trial.number)} to retrain the trial.")
        epochs = list(zip(*(run.metrics for run in runs), strict=False))
        reported = self._frozen(trial).intermediate_values
        for epoch, lines in enumerate(epochs, start=1):
            if epoch not in reported:
                trial.report(mean(line["test_accuracy"] for line in lines), epoch)
        return epochs

    def _train_epoch(self, trial: Trial, run: Trainer, progress: Shown | None) -> None:
        name, last = (f"trial {trial.number}", run.recipe.seed), -float(_HEARTBEAT)

        def on_step(step: int) -> None:
            nonlocal last
            if progress is not None:
                progress.advance(*name, step)
            if time.monotonic() - last > _HEARTBEAT:
                last = time.monotonic()
                with self._turn:
                    if self._is_ours(trial):
                        self._give_sign(trial)

        run.train_epoch(on_step)
        if progress is not None:
            progress.epoch(*name, run.metrics[-1])

    def _give_back(self) -> None:
        """Put trials back into the queue that this folder began, or that another machine left long ago."""
        with self._turn:
            for trial in self.trials():
                if trial.state == TrialState.RUNNING and self._is_left(trial):
                    # The sign first: whoever draws the trial next has not signed it yet.
                    self._storage.set_trial_user_attr(self._id(trial.number), "sign", None)
                    self._storage.set_trial_state_values(self._id(trial.number), TrialState.WAITING)

    def _is_left(self, trial: FrozenTrial) -> bool:
        sign = trial.user_attrs.get("sign")
        if sign is not None:
            return bool(sign["place"] == self._place or time.time() - sign["time"] > _SILENCE)
        drawn = trial.datetime_start  # a moment ago, here or by another machine, or a kill came between
        return self._url is None or drawn is None or time.time() - drawn.timestamp() > _PATIENCE

    def _clear_away(self) -> None:
        """Remove the checkpoints of finished trials: for large networks they are gigabytes."""
        for trial in self.trials():
            if trial.state.is_finished():
                for path in self._path(trial.number).glob("seed-*/checkpoint.pt"):
                    path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:03}"

    def _frozen(self, trial: Trial) -> FrozenTrial:
        """Return the trial as the database has it: two machines may draw at the same time."""
        return self._storage.get_trial(self._id(trial.number))

    def _id(self, number: int) -> int:
        study = self._storage.get_study_id_from_name(self.study.study_name)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)


class _Sampler(TPESampler):
    """A sampler of one trial, whose random settings have generators of their own.

    A generator that went on from trial to trial, or from setting to setting, would be lost in a kill between them.
    """

    def __init__(self, name: str) -> None:
        super().__init__(seed=_seed(name), n_startup_trials=_NUM_RANDOM, multivariate=True, constant_liar=True)
        self._name = name

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw a setting at random."""
        sampler = RandomSampler(_seed(f"{self._name} {param_name}"))
        return sampler.sample_independent(study, trial, param_name, param_distribution)


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def _turn(storage: str | None) -> AbstractContextManager[object]:
    """Return a lock under which trials change hands: SQLite, unlike a server, may give one to two processes.

    It can be taken again by whoever holds it.
    """
    url = None if storage is None else make_url(storage)
    if url is None or url.get_backend_name() != "sqlite" or not url.database:
        return nullcontext()
    return FileLock(f"{url.database}.lock")


@contextmanager
def _storage_errors(url: str | None) -> Iterator[None]:
    """Turn errors of the database into a sentence without its password."""
    try:
        yield
    except (ArgumentError, ImportError) as error:
        needs = f" and the driver {error.name}" if isinstance(error, ImportError) else ""
        raise UserError(
            f"--storage needs the URL of a database that SQLAlchemy supports{needs}, written like "
            "postgresql://user:password@host/name, with special characters in the password as %40 and the like."
        ) from None
    except (SQLAlchemyError, StorageInternalError) as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):  # within SQLAlchemy, which then reports an error of its own
                raise KeyboardInterrupt from None
            cause = cause.__context__
        reason = str(getattr(error.__cause__ or error, "orig", None) or type(error).__name__).splitlines()[0]
        secret = "" if url is None else make_url(url).password or ""
        reason = reason.replace(str(secret), "***") if secret else reason
        raise RunError(
            f"The search's storage failed: {reason}. Rerun the same command when it is back: results are kept."
        ) from None
