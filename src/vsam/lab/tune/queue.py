"""Who trains which trial: shared by processes of one folder, and by folders of one database."""

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

_SILENCE = 3600.0  # seconds without a sign of life after which another folder's trial is taken over


class Queue:
    """The trials of a search in its database.

    A trial is trained by whoever holds the lock in its folder, which the system releases when a process is killed:
    then the next one to come puts it back into the queue and goes on from its checkpoint. Locks do not reach other
    machines; there a trial is taken over, and begun anew, when nothing was heard of it for an hour.

    Args:
        plan: the search.
        folder: of the search; it is created.
        trials: how many there shall be in all, whoever trains them.
        storage: address of a database, or None for a file in the folder.
        pruner: which decides what trials are worth going on with.
    """

    def __init__(self, plan: Plan, folder: Path, trials: int, storage: str | None, pruner: BasePruner) -> None:
        make_folder(folder)
        self.folder, self.num_trials = folder, trials
        self.lock = FileLock(folder / ".lock")
        self._space = {one.key: distribution(one) for one in plan.space}
        sampler = Sampler(plan.space, own_values(plan.recipe, plan.space), plan.recipe.seed)
        with self.lock:
            database = None if storage is None else open_database(storage)  # first, lest a typo be noted in the folder
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
        """How many trials are over."""
        return sum(trial.state.is_finished() for trial in self.trials())

    def trials(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers."""
        return self.study.get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial:
        """One trial as the database has it."""
        return next(trial for trial in self.trials() if trial.number == number)

    def path(self, number: int) -> Path:
        """A trial's folder."""
        return self.folder / "trials" / f"{number:03}"

    @contextmanager
    def claim(self) -> Iterator[Trial | None]:
        """A trial that is ours alone: one that was given back or abandoned, else a new one, else None.

        On an exception it goes back into the queue.
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
        """Put a trial that nobody trains back into the queue, with its settings and what it has reported."""
        if self.trial(number).state == TrialState.RUNNING:
            study = self._storage.get_study_id_from_name(self.study.study_name)
            trial = self._storage.get_trial_id_from_study_id_trial_number(study, number)
            self._storage.set_trial_state_values(trial, TrialState.WAITING)

    def give_sign(self, trial: Trial) -> None:
        """Let other machines know that somebody is at a trial."""
        trial.set_user_attr("sign", self._sign())

    def _claim(self) -> tuple[Trial, FileLock] | None:
        with self.lock:
            while self._has_work():
                trial = self.study.ask(self._space)
                if trial.number >= self.num_trials:  # other machines were quicker; it waits for a longer search
                    self.give_back(trial.number)
                    break
                lock = self._trial_lock(trial.number)
                try:
                    lock.acquire()
                except Timeout:  # a process of this folder is at it, though another machine had thought it dead
                    continue
                self.give_sign(trial)
                return trial, lock
        return None

    def _has_work(self) -> bool:
        """Whether a trial waits; if none does and there may be more, a new one is made to."""
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
        if sign is None:  # begun with Optuna's own tools
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
