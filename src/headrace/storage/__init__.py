"""The only code that touches files: the disk port, indexes, checkpoints, producer state, segments and the log."""
