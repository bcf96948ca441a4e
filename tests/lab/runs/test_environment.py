"""Choosing a device, and what a result states about its origin."""

import json

import pytest
import torch

import vsam
from vsam.lab.errors import UserError
from vsam.lab.runs.environment import choose_device, describe_environment


def test_the_best_device_is_taken_unless_one_is_named():
    assert choose_device("cpu") == torch.device("cpu")
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device().type == best


@pytest.mark.parametrize("name", ["", "gpu", "cuda:99", "cpu cpu", "xpu:9", "hpu", "vulkan", "None", "cuda:-1", "meta"])
def test_a_device_that_does_not_exist_is_refused(name):
    with pytest.raises(UserError, match="--device"):
        choose_device(name)


def test_a_result_states_where_it_was_made():
    found = describe_environment(torch.device("cpu"))
    assert found["vsam"] == vsam.__version__
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["cores"] >= 1
    assert found["device"].startswith("CPU ")
    assert {"python", "numpy", "system", "commit"} <= found.keys()
    assert json.loads(json.dumps(found)) == found
