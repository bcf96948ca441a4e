"""The inside of a step."""
