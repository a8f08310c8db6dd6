"""A distributed, persistent message log that speaks the Kafka protocol."""

__version__ = "0.1.0.dev0"
