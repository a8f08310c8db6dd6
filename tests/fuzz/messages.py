"""Hostile messages in any number: `python -m tests.fuzz.messages --inputs 10000000` (or `make fuzz`).

Every input is a valid message of some version, damaged in one of the ways below. Whatever the bytes, decoding gives a
message or one ProtocolError; what it gives can be encoded again, and means the same.
"""

import sys
from random import Random

from headrace.errors import ProtocolError
from headrace.protocol import messages
from headrace.protocol.codec import decode_at, encode_bytes
from headrace.protocol.message import Message
from tests.fuzz.campaign import run
from tests.protocol.generate import Generator

LENGTHS = [
    (0x7FFFFFFF).to_bytes(4),
    (0xFFFFFFFF).to_bytes(4),
    (0x7FFF).to_bytes(2),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x80",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x40",
]


def damage(data: bytes, random: Random) -> bytes:
    """One input: the data cut, flipped, overwritten by a length that lies, lengthened, or made of noise."""
    made = bytearray(data)
    at = random.randrange(len(made) + 1)
    way = random.randrange(6)
    if way == 0:
        return data[:at]
    if way == 1:
        for _ in range(random.choice((1, 1, 2, 8))):
            if made:
                made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    elif way == 2:
        length = random.choice(LENGTHS)
        made[at : at + len(length)] = length
    elif way == 3:
        made[at:at] = random.choice(LENGTHS)
    elif way == 4:
        made[at:] = random.randbytes(random.randrange(64))
    else:
        made[at:] = bytes([random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))]) * random.randrange(200)
    return bytes(made)


def check(message: type[Message], version: int, data: bytes) -> bool:
    """Whether the data could be read. Anything but a message or a ProtocolError comes out as it is."""
    try:
        decoded, _ = decode_at(message, version, data, 0)
    except ProtocolError as error:
        assert f"{message.__name__} v{version}: " in str(error)
        assert " at byte " in str(error)
        return False
    again = encode_bytes(decoded, version)
    # Bytes, not messages: a NaN is not equal to itself.
    assert encode_bytes(decode_at(message, version, again, 0)[0], version) == again
    return True


def all_versions() -> list[tuple[type[Message], int]]:
    classes: list[type[Message]] = [getattr(messages, name) for name in dir(messages)]
    return [(cls, version) for cls in classes for version in cls.shape.versions]


def campaign(seed: int, inputs: int) -> tuple[int, int]:
    """How many inputs could be read, of how many."""
    random = Random(seed)
    generator = Generator(random)
    pairs, readable, done = all_versions(), 0, 0
    while done < inputs:
        cls, version = random.choice(pairs)
        data = encode_bytes(generator.message(cls, version), version)
        for _ in range(min(50, inputs - done)):
            hostile = damage(data, random)
            try:
                readable += check(cls, version, hostile)
            except BaseException:
                print(f"\n{cls.__name__} v{version}, seed {seed}: {hostile.hex()}", file=sys.stderr)
                raise
            done += 1
    return readable, done


if __name__ == "__main__":
    run(campaign, __doc__)
