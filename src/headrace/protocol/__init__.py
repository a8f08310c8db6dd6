"""The Kafka protocol, without I/O: message shapes, their compiler, frames and record batches."""
