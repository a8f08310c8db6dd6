"""A distributed, persistent message log that speaks the Kafka protocol."""
