"""Names that options take, for help and completion; spelled out, because their tables need torch."""

__all__ = ["BASES", "BENCHED", "SCALES", "STUDIES", "WORKLOADS"]

STUDIES = (
    *("table1", "alpha", "gamma", "ablation", "lsq", "norms"),
    *("trials", "frontier", "flatness", "convergence"),
)
SCALES = ("tiny", "small", "paper")
WORKLOADS = ("mlp", "transformer", "resnet20", "resnet18")
BASES = ("sgd", "sgd-fused", "adamw", "adamw-fused")
BENCHED = (
    *("sgd", "sam", "sam-5", "asam", "looksam-5", "ae-sam", "esam", "vsam", "vsam-a"),
    *("peer-sam", "peer-sam-foreach", "peer-looksam", "peer-gsam", "peer-friendly", "peer-wsam"),
)
