"""Where the command begins: without torch where that is not needed, and Ctrl-C while its imports last."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vsam
from vsam.lab.recipes.files import header_parts

# An editable installation copies the beginning of the command: the one beside the package is meant.
SOURCE = str(Path(vsam.__file__).parents[1])
COMMANDS = ("train", "compare", "study", "report", "tune", "bench", "methods", "models", "explain", "recipes", "data")

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
    done = run(
        WITHOUT_TORCH.format(calls=[*lists, *([name, "--help"] for name in (*COMMANDS, "quantized", "sharpness"))])
    )
    assert done.returncode == 0, done.stderr
    completed, version = done.stdout.splitlines()[:2]
    assert completed == f"fashion-mini\t{header_parts('fashion-mini')['title']}"
    assert version == f"vsam {vsam.__version__}"


# One of the lab's own, and those that a core module asks the package for while that is not imported itself; each in a
# process of its own, forked when the seconds of importing torch are over.
POSTPONED = """
import importlib, os, sys
import torch
from vsam_command import postpone
for module in ("vsam.step", "vsam.quantize", "vsam.lab.runs.train"):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, module
        continue
    assert "vsam" not in sys.modules
    postpone("vsam")
    importlib.import_module(module)
    import vsam
    assert vsam.SharpnessAware is sys.modules["vsam.optimizer"].SharpnessAware
    assert set(vsam.__all__) <= set(dir(vsam))
    break
"""


def test_a_postponed_package_is_whole_whatever_is_imported_first():
    done = run(POSTPONED)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["vsam.lab.cli", "torch.nn"])
def test_an_interrupt_during_the_imports_ends_in_one_line(module):
    done = run(INTERRUPTED.format(module=module))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Interrupted.\n")
