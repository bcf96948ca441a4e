"""Parts for the steps between two samples."""

from vsam.between.decayed import Decayed
from vsam.between.displaced import Displaced
from vsam.between.orthogonal import Orthogonal
from vsam.between.plain import Plain
from vsam.between.surrogate_gap import SurrogateGap
from vsam.between.weighted import Weighted

__all__ = ["Decayed", "Displaced", "Orthogonal", "Plain", "SurrogateGap", "Weighted"]
