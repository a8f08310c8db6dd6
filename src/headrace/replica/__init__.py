"""The partitions that this node hosts: who leads them, how far they are committed, who waits for that."""
