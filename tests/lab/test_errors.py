"""A hint to what was meant."""

import pytest

from vsam.lab.errors import nearest


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("vsm", ["sam", "vsam"], " Did you mean 'vsam'? Known: sam, vsam."),
        ("zzz", ["sam", "vsam"], " Known: sam, vsam."),
        ("gamma", (), " Known: none."),
    ],
)
def test_the_nearest_name_and_all_there_are(name, known, hint):
    assert nearest(name, iter(known)) == hint
