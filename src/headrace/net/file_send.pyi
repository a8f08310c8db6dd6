from typing import Final

__all__ = ["COMPILED", "NAPS_MAX", "NAP_US", "STEP_BYTES", "send", "send_ahead"]

COMPILED: bool
STEP_BYTES: Final = 262144
NAP_US: Final = 100
NAPS_MAX: Final = 20

def send(
    socket: int, descriptor: int, position: int, size: int, ahead_position: int, ahead_size: int, sync_beats: bytearray
) -> int: ...
def send_ahead(socket: int, data: bytes) -> int: ...
