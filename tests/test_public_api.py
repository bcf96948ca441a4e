"""The public interface is what is written down, so that no name or argument changes unnoticed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import public_api

sys.path.pop(0)

RENEW = "If that is meant, run python scripts/public_api.py --write and say it in CHANGELOG.md."
WRITTEN = public_api.FILE.read_text().splitlines()


def written(module: str) -> list[str]:
    """The lines of a module: those of modules below it have longer names, which are public too."""
    others = [other for other in public_api.MODULES if other.startswith(f"{module}.")]
    mine = [line for line in WRITTEN if line.startswith(f"{module}.")]
    return [line for line in mine if not any(line.startswith(f"{other}.") for other in others)]


@pytest.mark.parametrize("module", public_api.MODULES)
def test_names_and_signatures_are_those_that_are_written_down(module):
    if not public_api.is_installed(module):
        pytest.skip(f"needs {public_api.MODULES[module]}")
    found, known = public_api.list_module(module), written(module)
    assert known
    assert found == known, f"\ngone: {sorted(set(known) - set(found))}\nnew: {sorted(set(found) - set(known))}\n{RENEW}"


def test_every_line_belongs_to_a_module():
    assert sorted(line for module in public_api.MODULES for line in written(module)) == sorted(WRITTEN)
