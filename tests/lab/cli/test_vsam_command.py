"""The command starts without torch where it is not needed, and handles Ctrl-C during its imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vsam
from vsam.lab.recipes.files import header_parts

# An editable installation copies the beginning of the command: the one beside the package is meant.
SOURCE = str(Path(vsam.__file__).parents[1])
COMMANDS = ("train", "compare", "study", "report", "tune", "methods", "models", "explain", "recipes", "data")
MORE = ("sharpness", "check")

# Everything in one process: what one of them imported, the next would have as well.
WITHOUT_TORCH = """
import os, sys
from vsam_command import main
for arguments in [None, *{calls}]:
    if arguments is None:
        os.environ |= dict(_VSAM_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args")
        os.environ["_TYPER_COMPLETE_ARGS"] = "vsam train fashion"
        arguments = []
    sys.argv = ["vsam", *arguments]
    try:
        main()
    except SystemExit as exit:
        assert exit.code in (0, None), (arguments, exit.code)
    assert "torch" not in sys.modules, arguments
    os.environ.pop("_VSAM_COMPLETE", None)
import vsam
assert vsam.SAM.__name__ == "SAM" and vsam.__version__ and "torch" in sys.modules
"""

# A real interrupt, sent when Python announces the import of the named module.
INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
def watch(event, arguments):
    if event == "import" and arguments[0] == "{module}":
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(watch)
sys.argv = ["vsam", "models"]
from vsam_command import main
main()
"""


def run(program):
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)


def test_help_version_lists_and_completion_do_not_import_torch():
    lists = [["--version"], ["--help"], ["recipes"], ["recipes", "cifar10-small"], ["methods"], ["data", "--json"]]
    done = run(WITHOUT_TORCH.format(calls=[*lists, *([name, "--help"] for name in (*COMMANDS, *MORE))]))
    assert done.returncode == 0, done.stderr
    completed, version = done.stdout.splitlines()[:2]
    assert completed == f"fashion-mini\t{header_parts('fashion-mini')['title']}"
    assert version == f"vsam {vsam.__version__}"


def test_the_module_does_not_import_torch_for_its_help_either():
    program = "import runpy, sys; sys.argv = ['vsam', '--help']; runpy.run_module('vsam', run_name='__main__')"
    done = run(f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); {program}")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False"), done.stderr


# One of the lab's own, and one that a core module asks the package for before anybody else.
LAZY = """
import sys
import {module}
import vsam
assert vsam.SharpnessAware is sys.modules["vsam.optimizer"].SharpnessAware
assert set(vsam.__all__) <= set(dir(vsam))
"""


@pytest.mark.parametrize("module", ["vsam._step.undo", "vsam.quantize", "vsam.lab.train"])
def test_the_package_is_whole_whatever_is_imported_first(module):
    done = run(LAZY.format(module=module))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["vsam.lab.cli", "torch.nn"])
def test_an_interrupt_during_the_imports_ends_in_one_line(module):
    done = run(INTERRUPTED.format(module=module))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Interrupted.\n")
