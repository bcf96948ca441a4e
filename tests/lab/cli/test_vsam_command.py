"""Where the command begins: Ctrl-C while its imports last."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vsam

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


@pytest.mark.parametrize("module", ["vsam.lab.cli", "torch.nn"])
def test_an_interrupt_during_the_imports_ends_in_one_line(module):
    # An editable installation copies the beginning of the command: the one beside the package is meant.
    environment = os.environ | {"PYTHONPATH": str(Path(vsam.__file__).parents[1])}
    command = [sys.executable, "-c", INTERRUPTED.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Interrupted.\n")
