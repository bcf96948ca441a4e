"""The curves of a report: their names in the files and in the figures."""

from dataclasses import dataclass, replace

__all__ = ["EPOCH_METRICS", "SHARPNESS_METRICS", "STEP_METRICS", "VALIDATION_METRICS", "Metric"]


@dataclass(frozen=True)
class Metric:
    """One curve.

    Args:
        key: in `metrics.jsonl`, `steps.jsonl` or `sharpness.jsonl`.
        title: above the panel.
        axis: the axis label, with the unit.
        bounds: of the axis; None fits that end to the data.
        holds: the value also applies between sampled steps.
    """

    key: str
    title: str
    axis: str
    bounds: tuple[float | None, float | None] = (None, None)
    holds: bool = False


EPOCH_METRICS = (
    Metric("test_accuracy", "Test accuracy", "test accuracy, %"),
    Metric("train_accuracy", "Training accuracy", "training accuracy, %"),
    Metric("test_loss", "Test loss", "test loss, nats"),
    Metric("train_loss", "Training loss", "training loss, nats"),
)

VALIDATION_METRICS = tuple(
    replace(one, title=one.title.replace("Test", "Validation"), axis=one.axis.replace("test", "validation"))
    for one in EPOCH_METRICS
)
"""The same for trials of a search, whose files call the held-out training images test images."""

STEP_METRICS = (
    Metric("grad_norm", "Gradient norm", "‖g‖", (0, None)),
    Metric("psf_norm", "PSF norm", "‖PSF‖", (0, None)),
    Metric("psf_share", "PSF norm against gradient norm", "‖PSF‖ / ‖g‖", (0, None)),
    Metric("rate", "Sampling rate", "sampling rate", (0, 1.05), holds=True),
    Metric("change_var", "Mean change of the variance of ‖PSF‖", "ĉ_var", holds=True),
    Metric("change_norm", "Mean change of ‖PSF‖ / ‖g‖", "ĉ_norm", holds=True),
)

SHARPNESS_METRICS = (
    Metric("top_eigenvalue", "Top eigenvalue of the Hessian", "top eigenvalue", (0, None)),
    Metric("batch_ascent", "SAM’s sharpness, L(w + ρ g/‖g‖) − L(w) per batch", "SAM’s sharpness, nats", (0, None)),
)
