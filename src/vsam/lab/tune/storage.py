"""Where Optuna stores a search: a database, whose password is never shown."""

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from vsam.lab.errors import RunError, UserError

__all__ = ["DATABASE", "open_database", "open_file", "storage_errors"]

DATABASE = "study.db"
"""The file used if no --storage is given."""

_PATIENCE = 60  # seconds to wait for another process to release an SQLite file
_NUM_ATTEMPTS = 3
# NullPool: a file is cheap to open, and Python 3.13 warns about connections that a pool never closes.


def open_file(folder: Path) -> RDBStorage:
    """The database in the search's folder."""
    path = str(folder.absolute() / DATABASE)
    # Not by URL: versions of SQLAlchemy parse a path with % or ? differently.
    return RDBStorage(
        f"sqlite:///{DATABASE}", {"creator": lambda: sqlite3.connect(path, timeout=_PATIENCE), "poolclass": NullPool}
    )


def open_database(url: str) -> RDBStorage:
    """The database at a URL like `postgresql://user:password@host/name`."""
    is_file = re.match(r"sqlite[^:]*:///(?!:memory:)", url)
    settings = {"connect_args": {"timeout": _PATIENCE}, "poolclass": NullPool} if is_file else {}
    for attempt in range(_NUM_ATTEMPTS):
        try:
            return RDBStorage(url, {**settings, "pool_pre_ping": True})
        except (ArgumentError, ValueError, KeyError, IndexError):
            raise UserError(
                "--storage is not a database URL that SQLAlchemy supports. Write it like "
                "postgresql://user:password@host/name, with special characters in the password as %40 and the like."
            ) from None
        except ImportError as error:
            raise UserError(
                f"--storage needs a driver for its database: {_hide(str(error.__cause__ or error), url)}. "
                "Install it with pip (psycopg2-binary for postgresql+psycopg2://, pymysql for mysql+pymysql://)."
            ) from None
        except RuntimeError as error:
            raise UserError(f"--storage was written by another version of Optuna: {_hide(str(error), url)}") from None
        except SQLAlchemyError:
            if attempt == _NUM_ATTEMPTS - 1:
                raise
            time.sleep(1)  # another machine may be creating the tables right now
    raise AssertionError


@contextmanager
def storage_errors(url: str | None) -> Iterator[None]:
    """Turn database errors into a sentence without the password."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        reason = str(error.__cause__ or error).splitlines()[0]
        raise RunError(
            f"The search's storage failed: {_hide(reason, url)}. Rerun the same command when it is back: recorded "
            "results are kept."
        ) from None


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C came within SQLAlchemy, which then reports an error of its own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _hide(text: str, url: str | None) -> str:
    """The text without the URL's secrets in any encoding."""
    for secret in _secrets(url or ""):
        for form in (secret, unquote(secret), quote(unquote(secret), safe=""), quote_plus(unquote(secret))):
            text = text.replace(form, "***")
    return text


def _secrets(url: str) -> list[str]:
    account = re.search(r"://[^:/?@]*:([^/?]*)@", url)
    found = [url, account[1] if account else ""]
    found += [value for key, value in parse_qsl(url.partition("?")[2]) if re.search("pass|secret|token", key.lower())]
    return [secret for secret in found if secret]
