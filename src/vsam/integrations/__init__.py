"""The loops of other packages: each module needs the package that it is named after, and `import vsam` none of them."""

__all__: list[str] = []
