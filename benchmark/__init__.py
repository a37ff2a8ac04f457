"""Measurements: ratios, side by side in one run. `make bench` runs all of them, or each by itself as a script."""
