"""Benchmarks of the broker's handlers."""
