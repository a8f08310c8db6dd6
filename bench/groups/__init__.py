"""Groups, offsets and transactions."""
