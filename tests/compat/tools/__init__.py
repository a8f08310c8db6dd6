"""Kafka's own tools, run as people run them against a node of ours: `make compat`."""
