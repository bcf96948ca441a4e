"""Studies of our own: programs on the lab's public functions, not installed."""
