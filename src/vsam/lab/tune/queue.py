"""Who trains which trial: shared by the processes of a folder, and by the folders of a database."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from optuna import Study, Trial, create_study
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from vsam.lab.files import make_folder
from vsam.lab.tune.plan import Plan, enter_folder
from vsam.lab.tune.sampler import Sampler, distribution
from vsam.lab.tune.space import own_values
from vsam.lab.tune.storage import open_database, open_file

__all__ = ["Queue"]

_SILENCE = 3600.0  # seconds without a heartbeat after which another folder's trial is taken over


class Queue:
    """The trials of a search in its database.

    A trial is trained by whoever holds the lock in its folder, which the system releases when a process is killed:
    then the next process puts it back into the queue and resumes from its checkpoint. Locks do not work across
    machines: there, a trial is taken over and restarted after an hour without a heartbeat.

    Args:
        plan: the search.
        folder: of the search; it is created.
        trials: total number, whoever trains them.
        storage: URL of a database, or None for a file in the folder.
        pruner: decides which trials to stop early.
    """

    def __init__(self, plan: Plan, folder: Path, trials: int, storage: str | None, pruner: BasePruner) -> None:
        make_folder(folder)
        self.folder, self.num_trials = folder, trials
        self.lock = FileLock(folder / ".lock")
        self._space = {one.key: distribution(one) for one in plan.space}
        sampler = Sampler(plan.space, own_values(plan.recipe, plan.space), plan.recipe.seed)
        with self.lock:
            database = None if storage is None else open_database(storage)  # first: a typo must not be recorded
            self._place = enter_folder(folder, plan, storage is not None)
            self._storage = database or open_file(folder)
            self.study: Study = create_study(
                storage=self._storage,
                study_name=plan.name,
                sampler=sampler,
                pruner=pruner,
                direction="maximize",
                load_if_exists=True,
            )

    @property
    def num_done(self) -> int:
        """How many trials have ended."""
        return sum(trial.state.is_finished() for trial in self.trials())

    def trials(self) -> list[FrozenTrial]:
        """All trials, by number."""
        return self.study.get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial:
        """One trial, as stored in the database."""
        return next(trial for trial in self.trials() if trial.number == number)

    def path(self, number: int) -> Path:
        """A trial's folder."""
        return self.folder / "trials" / f"{number:03}"

    @contextmanager
    def claim(self) -> Iterator[Trial | None]:
        """Claim a trial for this process: one that was given back or abandoned, else a new one, else None.

        On an exception, it goes back into the queue.
        """
        claimed = self._claim()
        if claimed is None:
            yield None
            return
        trial, lock = claimed
        try:
            yield trial
        except BaseException:
            self.give_back(trial.number)
            raise
        finally:
            lock.release()

    def give_back(self, number: int) -> None:
        """Put a trial that nobody trains back into the queue, with its settings and reported accuracies."""
        if self.trial(number).state == TrialState.RUNNING:
            study = self._storage.get_study_id_from_name(self.study.study_name)
            trial = self._storage.get_trial_id_from_study_id_trial_number(study, number)
            self._storage.set_trial_state_values(trial, TrialState.WAITING)

    def give_sign(self, trial: Trial) -> None:
        """Send a heartbeat, so that other machines know that the trial is being trained."""
        trial.set_user_attr("sign", self._sign())

    def _claim(self) -> tuple[Trial, FileLock] | None:
        with self.lock:
            while self._has_work():
                trial = self.study.ask(self._space)
                if trial.number >= self.num_trials:  # other machines were faster; left for a longer search
                    self.give_back(trial.number)
                    break
                lock = self._trial_lock(trial.number)
                try:
                    lock.acquire()
                except Timeout:  # a process of this folder is training it, though another machine thought it dead
                    continue
                self.give_sign(trial)
                return trial, lock
        return None

    def _has_work(self) -> bool:
        """Whether a trial is waiting; if none is and more are wanted, enqueue a new one."""
        for trial in self.trials():
            if trial.state == TrialState.RUNNING and self._is_abandoned(trial):
                self.give_back(trial.number)
        trials = self.trials()
        if any(trial.state == TrialState.WAITING and trial.number < self.num_trials for trial in trials):
            return True
        if len(trials) >= self.num_trials:
            return False
        self.study.enqueue_trial({}, user_attrs={"sign": self._sign()})
        return True

    def _sign(self) -> dict[str, Any]:
        return {"place": self._place, "time": time.time()}

    def _is_abandoned(self, trial: FrozenTrial) -> bool:
        sign = trial.user_attrs.get("sign")
        if sign is None:  # started with Optuna's own tools
            return False
        if sign["place"] != self._place:
            return bool(time.time() - sign["time"] > _SILENCE)
        try:
            with self._trial_lock(trial.number):
                return True
        except Timeout:
            return False

    def _trial_lock(self, number: int) -> FileLock:
        make_folder(self.path(number))
        return FileLock(self.path(number) / ".lock", timeout=0)
