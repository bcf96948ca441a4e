"""What the turns say, from turns whose answer is known."""

import pytest

from lab.bench.made import entry, turns
from vsam.lab.bench.results import Row, make_rows
from vsam.lab.bench.timing import Turn

BEST = turns(1.0)
SLOW = turns(2.0)


def rows_of(*groups, workload: str = "mlp", base: str = "sgd") -> list[Row]:
    entries, taken = zip(*groups, strict=True)
    return make_rows(workload, base, entries, taken)


def with_peers(*groups, **options) -> list[Row]:
    return rows_of(*groups, (entry("peer-sam"), SLOW), (entry("peer-sam-foreach"), BEST), **options)


def test_what_is_added() -> None:
    turn = Turn(sampled=True, step=9.0, reference_pass=3.0, reference_base=1.0)
    assert turn.to_base == 9 / 4
    assert turn.added(2) == (9 - 2 * 3 - 1) / 4


def test_a_slower_machine_changes_nothing() -> None:
    assert Turn(True, 18.0, 6.0, 2.0).added(2) == Turn(True, 9.0, 3.0, 1.0).added(2)
    within = Turn(True, 9.0, 3.0, 1.0, outside=2.5, reference_clearing=0.25)
    assert within.added(2) == (2.5 - 2 * 0.25) / 4


def test_a_row() -> None:
    sam = with_peers((entry("sam"), turns(0.5)))[0]
    assert (sam.method, sam.kind, sam.passes, sam.num_turns) == ("sam", "sampled", 2, 9)
    assert sam.step.median == pytest.approx(7.5)
    assert sam.added is not None
    assert sam.added.median == pytest.approx(0.5)
    assert sam.to_base.median == pytest.approx(7.5 / 4)


def test_the_faster_sam_of_the_peers_is_the_unit() -> None:
    sam, slow, best = with_peers((entry("sam"), turns(0.5)))
    assert [row.to_peer and row.to_peer.value for row in (sam, slow, best)] == pytest.approx([0.5, 2.0, 1.0])
    assert sam.to_peer is not None
    assert sam.to_peer.is_ranked


def test_what_is_within_the_noise_is_not_ranked() -> None:
    sam = with_peers((entry("sam"), turns(0.95, noise=0.5)))[0]
    assert sam.to_peer is not None
    assert not sam.to_peer.is_ranked


def test_kinds_have_rows_of_their_own() -> None:
    both = [*turns(0.5), *turns(0.2, sampled=False)]
    assert [(row.kind, row.passes) for row in rows_of((entry("sam-5"), both))] == [("sampled", 2), ("plain", 1)]
    assert [row.kind for row in rows_of((entry("vsam", False), both))] == ["plain"]
    assert rows_of((entry("sam-5"), both[:1])) == []  # one turn has no spread


def test_esam_has_passes_of_another_kind() -> None:
    esam = with_peers((entry("esam"), turns(0.5)))[0]
    assert (esam.passes, esam.added, esam.to_peer) == (None, None, None)


def test_without_peers_there_is_no_ratio_and_no_verdict() -> None:
    (sam,) = rows_of((entry("sam"), turns(0.5)))
    assert (sam.to_peer, sam.goal, sam.verdict) == (None, 0.5, None)


@pytest.mark.parametrize(("added", "noise", "verdict"), [(0.3, 0.01, "met"), (0.9, 0.01, "missed"), (0.5, 0.3, "open")])
def test_verdicts(added: float, noise: float, verdict: str) -> None:
    sam = with_peers((entry("sam"), turns(added, noise=noise)))[0]
    assert (sam.goal, sam.verdict) == (0.5, verdict)


@pytest.mark.parametrize(("added", "verdict"), [(0.1, "met"), (1.0, "missed")])
def test_plain_steps_are_judged_against_the_base_alone(added: float, verdict: str) -> None:
    (plain,) = rows_of((entry("vsam", False), turns(added, sampled=False)))
    assert (plain.goal, plain.verdict) == (1.10, verdict)


def test_goals_are_for_sgd_on_two_workloads() -> None:
    assert with_peers((entry("sam"), turns(0.5)), base="adamw")[0].goal is None
    assert with_peers((entry("sam"), turns(0.5)), workload="resnet20")[0].goal is None
