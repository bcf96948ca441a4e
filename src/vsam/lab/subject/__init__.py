"""What `vsam choose` and `vsam doctor` examine: a network to train, from a recipe or a user's Python file."""

from vsam.lab.subject.file import is_file, read_file
from vsam.lab.subject.recipe import read_recipe_subject
from vsam.lab.subject.subject import Subject

__all__ = ["Subject", "is_file", "read_file", "read_recipe_subject"]
