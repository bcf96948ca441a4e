"""Every table and figure of the paper as a study: planned, run, gathered and drawn."""
