"""Against curvlinops, where it is installed: the same Hessian, and the same eigenvalues and trace from it."""

import pytest
import torch
from torch import nn

from curved_net import batches, loss, net
from vsam.sharpness import measure
from vsam.sharpness.objective import Objective
from vsam.sharpness.session import untouched

curvlinops = pytest.importorskip("curvlinops", reason="curvlinops is not installed")


def theirs(model: nn.Module) -> torch.Tensor:
    """The Hessian of the mean cross entropy as a dense matrix, by curvlinops."""
    parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
    data = [(inputs, targets) for inputs, targets in batches()]
    operator = curvlinops.HessianLinearOperator(
        model, nn.CrossEntropyLoss(), parameters, data, check_deterministic=False
    )
    size = sum(one.numel() for one in parameters.values())
    return operator @ torch.eye(size, dtype=torch.float64)


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
    assert found.trace.value == pytest.approx(hessian.trace().item(), rel=1e-6)
