"""The loops of other packages: each module needs the package it is named after; `import vsam` needs none of them."""

__all__: list[str] = []
