"""`vsam bench` as a user types it."""

import json
from pathlib import Path

import pytest

from lab.command import assert_refused, vsam

QUICK = ("bench", "--workloads", "mlp", "--methods", "sgd,vsam", "--base", "sgd", "--rounds", "2", "--no-memory")


def test_json_on_the_standard_output_and_a_folder(tmp_path: Path) -> None:
    command = vsam(*QUICK, "--json", "-", "--out", "results", folder=tmp_path)
    assert command.code == 0, command.stderr
    record = json.loads(command.stdout)
    assert [row["kind"] for row in record["rows"]] == ["plain", "sampled", "plain"]
    assert record["command"].startswith("vsam bench --workloads mlp")
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "bench.json",
        "bench.md",
        "bench.png",
        "bench.svg",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workloads", "mpl"), "--workloads: unknown name 'mpl'. Known: mlp, transformer, resnet20, resnet18."),
        (("--methods", "sum"), "--methods: unknown name 'sum'. Known: sgd, sam,"),
        (("--base", "lion"), "--base: unknown name 'lion'."),
        (("--methods", ","), "--methods needs at least one name, or 'all'."),
        (("--rounds", "1"), "--rounds must be at least 2, got 1"),
        (("--seconds", "0"), "--seconds must be above 0, got 0."),
        (("--json", "."), ". is a folder: give a file name."),
    ],
)
def test_bad_input(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(vsam("bench", *arguments, folder=tmp_path), 2, message)
