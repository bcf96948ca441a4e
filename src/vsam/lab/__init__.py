"""The lab: data, models, recipes and training around the library."""
