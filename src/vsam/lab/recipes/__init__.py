"""Recipes: complete, named and checked descriptions of training runs, and the named files."""

__all__: list[str] = []
