"""The methods by their names in recipes and tables: one row per method."""

from vsam.lab.methods.find import all_methods, find_method, is_ours
from vsam.lab.methods.row import Method
from vsam.lab.methods.table import METHODS

__all__ = ["METHODS", "Method", "all_methods", "find_method", "is_ours"]
