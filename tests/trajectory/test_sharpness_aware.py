"""SAF under an optimizer that calls its closure twice: the memory holds the clean logits."""

import torch
from torch import nn

from vsam.methods import SAM
from vsam.trajectory import SAFLoss


def test_the_memory_holds_the_logits_at_the_unperturbed_weights():
    torch.manual_seed(0)
    model, saf = nn.Linear(6, 4), SAFLoss(num_examples=10, num_classes=4, lag=1, start_epoch=0)
    optimizer = SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, rho=0.5)
    inputs, labels, indices = torch.randn(10, 6), torch.randint(4, (10,)), torch.arange(10)
    for epoch in range(3):
        clean = model(inputs).detach()
        passes = []

        def closure(epoch=epoch, passes=passes):
            logits = model(inputs)
            passes.append(logits.detach())
            loss = saf(logits, labels, indices, epoch)
            loss.backward()
            return loss

        optimizer.step(closure)
        assert len(passes) == 2
        assert not torch.equal(*passes)
        old, known = saf.memory.recall(indices, epoch + 1)
        assert known.all()
        assert torch.equal(old, clean)
