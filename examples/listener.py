"""Watch a run: a listener gets one record per step, with the norms and vSAM's sampling rate."""

import torch
from torch import nn

import vsam


def main() -> list[vsam.StepRecord]:
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.VSAM(base, model=model, alpha=0.8, start=100)  # large, because the run is short

    records: list[vsam.StepRecord] = []
    stop_collecting = optimizer.subscribe(records.append)

    def print_rate(record: vsam.StepRecord) -> None:
        if record.step % 100 == 0:
            print(
                f"step {record.step:4}  loss {record.loss:.3f}  rate {record.rate:4.0%}  s {record.s:5.2f}  "
                f"gradient {record.grad_norm:.2e}"
            )

    optimizer.subscribe(print_rate)
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
