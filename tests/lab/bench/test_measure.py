"""The whole benchmark, small."""

from collections.abc import Iterator

import pytest

from lab.bench.made import TINY
from vsam.lab.bench import measure, peers
from vsam.lab.bench.measure import Plan, run
from vsam.lab.bench.workloads import WORKLOADS
from vsam.lab.errors import UserError


@pytest.fixture(autouse=True)
def tiny() -> Iterator[None]:
    WORKLOADS["tiny"] = TINY
    yield
    del WORKLOADS["tiny"]


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.last = 0

    def __call__(self, task: str, total: int, done: int) -> None:
        if task not in self.tasks:
            self.tasks.append(task)
        self.last = done


def test_times_and_counts() -> None:
    told = Told()
    report = run(Plan(("tiny",), ("sgd",), ("sgd", "sam", "vsam"), rounds=2, memory=False), told)
    assert [(row.method, row.kind) for row in report.rows] == [
        ("sgd", "plain"),
        ("sam", "sampled"),
        ("vsam", "sampled"),
        ("vsam", "plain"),
    ]
    added = {(one.method, one.kind): one.added for one in report.counts}
    assert added["sgd", "plain"] is not None
    assert added["sgd", "plain"].operators == 0
    assert added["sam", "sampled"] is not None
    assert added["sam", "sampled"].passes == 0
    assert added["sam", "sampled"].operators > 0
    assert told.tasks == ["tiny, sgd: timing", "tiny, sgd: counting"]
    assert told.last == 4


@pytest.mark.parametrize(("version", "reason"), [(None, "is not installed"), ("3.5.0", "3.5.0 is older than 4.1")])
def test_without_pytorch_optimizer_it_says_so(
    monkeypatch: pytest.MonkeyPatch, version: str | None, reason: str
) -> None:
    monkeypatch.setattr(peers, "peers_version", lambda: version)
    report = run(Plan(("tiny",), ("sgd",), ("sgd", "sam", "peer-sam"), rounds=2, memory=False))
    assert {row.method for row in report.rows} == {"sgd", "sam"}
    assert reason in report.notes[0]
    with pytest.raises(UserError, match="No other method was chosen with --methods"):
        run(Plan(("tiny",), ("sgd",), ("peer-sam",), rounds=2, memory=False))


def test_without_proc_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "is_measurable", lambda: False)
    report = run(Plan(("tiny",), ("sgd",), ("sgd",), rounds=2))
    assert report.memory == []
    assert "Memory was not measured" in report.notes[0]


def test_fused_bases_are_without_what_refuses_them() -> None:
    pytest.importorskip("pytorch_optimizer")
    report = run(Plan(("tiny",), ("sgd-fused",), ("peer-sam", "peer-sam-foreach"), rounds=2, memory=False))
    assert {row.method for row in report.rows} == {"peer-sam"}


def test_interrupted_it_keeps_what_it_has() -> None:
    class Interrupts(Told):
        def __call__(self, task: str, total: int, done: int) -> None:
            if "adamw" in task:
                raise KeyboardInterrupt

    report = run(Plan(("tiny",), ("sgd", "adamw"), ("sgd",), rounds=2, memory=False), Interrupts())
    assert [row.base for row in report.rows] == ["sgd"]
    assert not report.is_complete
    assert report.notes == ["Interrupted: the rest was not measured."]
