"""Names that are written out for help and completion are those of the tables."""

from vsam.lab.bench.bases import BASES
from vsam.lab.bench.contestants import OURS
from vsam.lab.bench.peers import PEERS
from vsam.lab.bench.workloads import WORKLOADS
from vsam.lab.cli import names
from vsam.lab.study.plan import STUDIES
from vsam.lab.study.study import SCALES


def test_they_are_the_tables():
    assert tuple(STUDIES) == names.STUDIES
    assert names.SCALES == SCALES
    assert tuple(WORKLOADS) == names.WORKLOADS
    assert tuple(BASES) == names.BASES
    assert tuple(dict.fromkeys(entry.name for entry in (*OURS, *PEERS))) == names.BENCHED
