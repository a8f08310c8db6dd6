"""Coordinators: groups, offsets and transactions, as shards of state topics on one runtime."""
