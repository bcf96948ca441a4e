"""Who trains what, with several processes and machines: no trial twice, none forgotten, and as many as asked for."""

import time

import pytest

from lab.tune.plans import Watched, open_search, quick_plan, results
from vsam.lab.tune.queue import Queue
from vsam.lab.tune.results import count_states
from vsam.lab.tune.search import make_pruner


def open_queue(folder, trials, database=None):
    storage = None if database is None else f"sqlite:///{database}"
    return Queue(quick_plan(), folder, trials, storage, make_pruner(2))


def states(queue):
    return [trial.state.name for trial in queue.trials()]


@pytest.mark.slow
def test_a_trial_belongs_to_one_process(tmp_path):
    first, second = open_queue(tmp_path, 2), open_queue(tmp_path, 2)
    with first.claim() as one, second.claim() as other, second.claim() as none:
        assert (one.number, other.number, none) == (0, 1, None)
        assert one.params != other.params
        assert states(first) == ["RUNNING", "RUNNING"]


def test_what_is_given_back_is_claimed_first_with_its_settings_and_reports(tmp_path):
    queue = open_queue(tmp_path, 3)

    def begin():
        with queue.claim() as trial:
            trial.report(50.0, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert states(queue) == ["WAITING"]
    settings = queue.trial(0).params
    assert len(settings) == 3
    with open_queue(tmp_path, 3).claim() as again:
        assert (again.number, again.params) == (0, settings)
        assert queue.trial(0).intermediate_values == {1: 50.0}


def test_a_trial_whose_process_is_gone_is_claimed_at_once(tmp_path):
    gone = open_queue(tmp_path, 2)
    trial, lock = gone._claim()
    lock.release()  # what the system does with a killed process's locks
    assert states(gone) == ["RUNNING"]
    with open_queue(tmp_path, 2).claim() as again:
        assert (again.number, again.params) == (trial.number, trial.params)


@pytest.mark.parametrize("silence", [3000, 4000])
def test_another_machines_trial_is_taken_over_after_an_hour_of_silence(tmp_path, silence):
    gone = open_queue(tmp_path / "there", 2, tmp_path / "study.db")
    trial, lock = gone._claim()
    lock.release()
    trial.set_user_attr("sign", {"place": gone._place, "time": time.time() - silence})
    with open_queue(tmp_path / "here", 2, tmp_path / "study.db").claim() as claimed:
        assert claimed.number == (0 if silence > 3600 else 1)
    ours = open_queue(tmp_path / "here", 2, tmp_path / "study.db")
    assert ours.trial(claimed.number).user_attrs["sign"]["place"] == ours._place


@pytest.mark.slow
def test_whoever_wakes_up_late_finds_its_trial_ended_and_goes_on(tmp_path):
    database = f"sqlite:///{tmp_path}/study.db"
    sleeper = open_search(tmp_path / "there", 2, storage=database)
    other = open_search(tmp_path / "here", 2, storage=database)

    def sleep(event):
        if event == ("epoch", 0, 1):
            sleeper._queue.give_back(0)  # as if it had been silent for an hour
            assert other.run(Watched()) == 2

    assert sleeper.run(Watched(sleep)) == 1
    assert count_states(results(sleeper)) == "2 trials: 2 complete"


@pytest.mark.slow
def test_machines_that_begin_a_trial_at_the_same_moment_do_not_exceed_the_number(tmp_path):
    here, there = (open_queue(tmp_path / name, 1, tmp_path / "study.db") for name in ("here", "there"))
    for queue in (here, there):
        queue.study.enqueue_trial({}, user_attrs={"sign": queue._sign()})
    with here.claim() as one, there.claim() as none:
        assert one.number == 0
        assert none is None
    assert states(here) == ["RUNNING", "WAITING"]
    search = open_search(tmp_path / "more", 2, storage=f"sqlite:///{tmp_path}/study.db")
    search.run(Watched())
    assert [result.number for result in results(search)] == [0, 1]


@pytest.mark.slow
def test_different_searches_share_a_database(tmp_path):
    database = f"sqlite:///{tmp_path}/study.db"
    for number, plan in enumerate((quick_plan(), quick_plan(search="rho=0.1:0.2"))):
        search = open_search(tmp_path / str(number), 1, plan, storage=database)
        assert search.run(Watched()) == 1
        assert len(results(search)) == 1
