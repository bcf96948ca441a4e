"""`vsam choose` as a user runs it."""

import json

import pytest

from lab.command import assert_refused, vsam
from lab.subject.files import write

pytestmark = pytest.mark.slow


def test_a_file_gets_a_table_and_code(tmp_path):
    write(tmp_path)
    command = vsam("choose", "mine.py", "--price", "1.25", "--seconds", "0.1", folder=tmp_path)
    assert command.code == 0, command.stderr
    assert "the file prints" in command.stderr
    assert "Timing steps for 0.1 s." in command.stderr
    assert "the file prints" not in command.stdout
    assert "Use vsam-budget: about " in command.stdout
    settings = "rho=0.05, budget=0.25, total_steps=epochs * len(loader)"
    assert f"optimizer = vsam.VSAM(base, model=model, {settings})" in command.stdout
    assert "vsam train" not in command.stdout


def test_a_recipe_gets_json_and_a_command(tmp_path):
    arguments = ("--set", "data.train=96", "--set", "batch=16", "--seconds", "0.1", "--json")
    command = vsam("choose", "fashion-mini", *arguments, folder=tmp_path)
    assert command.code == 0, command.stderr
    content = json.loads(command.stdout)
    given, chosen = "--set data.train=96 --set batch=16", "--set method=vsam-budget --set budget.budget=0.2"
    assert content["advice"]["command"] == f"vsam train fashion-mini {given} {chosen}"
    assert content["advice"]["settings"]["budget"] == 0.2
    assert content["times"]["sampled"] > content["times"]["plain"] > 0
    assert {row["method"] for row in content["methods"]} >= {"sgd", "sam", "vsam", "msam"}
    assert not list(tmp_path.iterdir())


def test_what_cannot_work_is_refused(tmp_path):
    path = write(tmp_path)
    cases = [
        (("--price", "3"), "--price must be between 1"),
        (("--price", "1.2", "--time", "1.5"), "give only one"),
        (("--seconds", "0"), "--seconds must be above 0 and at most 3600"),
        (("--set", "lr=1"), "are only for recipes"),
    ]
    for options, said in cases:
        assert_refused(vsam("choose", path, *options, folder=tmp_path), 2, said)
    assert_refused(vsam("choose", "nosuch", folder=tmp_path), 2, "There is no recipe 'nosuch'")
    write(tmp_path, ("targets)", "targets, reduction='none')"))
    assert_refused(vsam("choose", path, "--seconds", "0.1", folder=tmp_path), 2, "loss must return one number")
