from typing import Final

__all__ = ["COMPILED", "NAPS_MAX", "NAP_US", "REST_US_MAX", "STEP_BYTES", "send", "send_ahead"]

COMPILED: bool
STEP_BYTES: Final = 262144
NAP_US: Final = 100
NAPS_MAX: Final = 20
REST_US_MAX: Final = 5000

def send(
    socket: int,
    descriptor: int,
    position: int,
    size: int,
    ahead_position: int,
    ahead_size: int,
    sync_beats: bytearray,
    rests: int,
) -> int: ...
def send_ahead(socket: int, data: bytes) -> int: ...
