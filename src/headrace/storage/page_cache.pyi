__all__ = ["COMPILED", "cached_pages"]

COMPILED: bool

def cached_pages(descriptor: int, position: int, size: int) -> int: ...
