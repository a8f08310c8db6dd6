from typing import Final

__all__ = ["COMPILED", "END", "SYNC", "serve"]

COMPILED: bool
SYNC: Final = 1
END: Final = 2

def serve(asked_descriptor: int, told_descriptor: int, descriptor: int) -> None: ...
