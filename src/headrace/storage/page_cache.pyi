from typing import Final

__all__ = ["COMPILED", "PROBE_BYTES", "cached_pages", "has_come"]

COMPILED: bool
PROBE_BYTES: Final = 131072

def cached_pages(descriptor: int, position: int, size: int) -> int: ...
def has_come(descriptor: int, position: int, size: int) -> bool: ...
