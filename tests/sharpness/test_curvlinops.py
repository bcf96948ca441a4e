"""Against curvlinops, where it is installed: the same Hessian, and the same eigenvalues and trace from it."""

import warnings

import pytest
import torch
from torch import nn

from curved_net import batches, loss, net
from vsam.sharpness import measure
from vsam.sharpness.objective import Objective
from vsam.sharpness.session import untouched

with warnings.catch_warnings(action="ignore"):  # of what it is built on
    curvlinops = pytest.importorskip("curvlinops", reason="curvlinops is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def theirs(model: nn.Module) -> torch.Tensor:
    """The Hessian of the mean cross entropy as a dense matrix, by curvlinops."""
    parameters = [one for one in model.parameters() if one.requires_grad]
    criterion = nn.CrossEntropyLoss()
    operator = curvlinops.HessianLinearOperator(model, criterion, parameters, batches(), check_deterministic=False)
    return operator @ torch.eye(sum(one.numel() for one in parameters), dtype=torch.float64)


def test_products_eigenvalues_and_trace_are_theirs() -> None:
    model, given = net(), batches()
    hessian = theirs(model)
    with untouched(model, given, "eval") as rewind:
        objective = Objective(model, loss, given, rewind)
        ours = torch.stack([objective.product(row) for row in torch.eye(objective.size, dtype=torch.float64)])
    torch.testing.assert_close(ours, hessian)
    found = measure(model, loss, given, num_eigenvalues=3, tolerance=1e-8, max_iterations=200)
    assert found.top_eigenvalues is not None
    assert found.trace is not None
    values = torch.linalg.eigvalsh(hessian).flip(0)
    torch.testing.assert_close(found.top_eigenvalues.values, values[:3])
    assert abs(found.trace.value - hessian.trace().item()) <= 4 * found.trace.error
    assert found.trace.error < 0.2 * hessian.trace().item()
