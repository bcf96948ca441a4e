"""Watch a run: a listener gets one record per step, with the loss and the norms of both passes."""

import torch
from torch import nn

import vsam


def main() -> list[vsam.StepRecord]:
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.VSAM(base, model=model, budget=0.2)

    records: list[vsam.StepRecord] = []
    stop_collecting = optimizer.subscribe(records.append)

    def show(record: vsam.StepRecord) -> None:
        if record.sampled and record.step % 100 == 1:
            changed = record.psf_norm / record.grad_norm
            print(f"step {record.step:4}  loss {record.loss:.3f}  ‖g‖ {record.grad_norm:.2e}  ‖PSF‖/‖g‖ {changed:.2f}")

    optimizer.subscribe(show)
    for step in range(1_000):
        batch = torch.randint(1_000, (50,))

        def closure(batch=batch):
            loss = nn.functional.cross_entropy(model(points[batch]), labels[batch])
            loss.backward()
            return loss

        optimizer.step(closure)
        if step == 899:
            stop_collecting()
    print(f"{optimizer.num_samples} second gradients, {optimizer.num_skipped} skipped steps")
    return records


if __name__ == "__main__":
    main()
