"""Benchmarks of storage."""
