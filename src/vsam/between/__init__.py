"""What is done between two samples?"""

from vsam.between.decayed import Decayed
from vsam.between.orthogonal import Orthogonal
from vsam.between.plain import Plain

__all__ = ["Decayed", "Orthogonal", "Plain"]
