"""Where a search is kept: in any folder, or at an address whose password is never said."""

import sqlite3
from contextlib import closing

import optuna
import pytest
from sqlalchemy.exc import InvalidRequestError, OperationalError
from sqlalchemy.pool import NullPool

from lab.tune.plans import Watched, open_search, results
from vsam.lab.errors import RunError, UserError
from vsam.lab.tune.storage import open_database, open_file, storage_errors


def test_any_folder_can_hold_a_search(tmp_path, monkeypatch):
    folder = tmp_path / "a {b} 50%25?#ü"
    folder.mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for _ in range(2):
        optuna.create_study(storage=open_file(folder), study_name="mine", load_if_exists=True)
    assert {path.name for path in folder.iterdir()} == {"study.db"}
    assert list((tmp_path / "here").iterdir()) == []
    with closing(sqlite3.connect(folder / "study.db")) as database:
        assert database.execute("select study_name from studies").fetchall() == [("mine",)]


def test_a_file_is_closed_after_each_use_and_a_database_in_memory_is_kept(tmp_path):
    for storage in (open_file(tmp_path), open_database(f"sqlite:///{tmp_path}/other.db")):
        optuna.create_study(storage=storage)
        assert isinstance(storage.engine.pool, NullPool)
    for url in ("sqlite://", "sqlite:///:memory:"):
        storage = open_database(url)
        assert optuna.create_study(storage=storage).trials == []
        storage.engine.dispose()


@pytest.mark.parametrize(
    "url", ["nonsense", "nosuch://host/name", "redis://host", "postgresql://me:hu{nt}er2@host/name", "://hunter2@"]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(UserError, match="--storage is not a database URL") as raised:
        open_database(url)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_missing_driver_is_named():
    with pytest.raises(UserError, match="needs a driver") as raised:
        open_database("mysql+mysqldb://me:hunter2@host/name")
    assert "MySQLdb" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:hunter2@host/name", "hunter2"),
        ("postgresql://me:hunt%40er2@host/name", "hunt@er2"),
        ("postgresql://me:hunt%40er2@host/name", "hunt%40er2"),
        ("postgresql://me:hunt%20er2@host/name", "hunt+er2"),
        ("postgresql://me:p:q@host/name", "p:q"),
        ("postgresql://host/name?user=me&password=hunter2", "hunter2"),
        ("postgresql://host/name?sslpassword=hunter2", "hunter2"),
        ("postgresql://[me:hunter2@host/name", "hunter2"),
        ("postgresql://me:hunter2@host/name?mail=a@b", "hunter2"),
    ],
)
def test_whatever_a_database_says_the_password_is_not_repeated(url, said):
    with pytest.raises(RunError, match=r"storage failed: .*could not connect") as raised, storage_errors(url):
        raise OperationalError("select 1", {}, Exception(f"could not connect with {said} to host {url}\nmore"))
    assert said not in str(raised.value)
    assert "Rerun the same command" in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_ctrl_c_is_not_taken_for_a_failure_of_the_storage():
    def commit():
        try:
            raise KeyboardInterrupt
        finally:
            raise InvalidRequestError("Method 'close()' can't be called here")

    with pytest.raises(KeyboardInterrupt), storage_errors(None):
        commit()


def test_a_database_that_cannot_be_opened_is_a_failure_of_the_run(tmp_path):
    with pytest.raises(RunError, match=r"storage failed: .*unable to open database file"):
        open_search(tmp_path / "search", 1, storage=f"sqlite:///{tmp_path}/nowhere/study.db")
    assert not (tmp_path / "search" / "search.json").exists()


def test_the_address_is_in_no_file(tmp_path):
    search = open_search(tmp_path / "search", 1, storage=f"sqlite:///{tmp_path}/hunter2.db")
    search.run(Watched())
    assert len(results(search)) == 1
    for path in (tmp_path / "search").rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes()
    assert not (tmp_path / "search" / "study.db").exists()
