"""Runs as arms, and arms as tables, curves and gains, by what the tracker holds of them."""
