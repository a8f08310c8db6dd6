"""Transactions: the state of each transactional id, and how transactions begin and end."""
