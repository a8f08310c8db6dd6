"""Writes `kept_codecs.py`, in which Python keeps compiled what each node compiles at its first start: `make stubs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.protocol import messages
from headrace.protocol.compiler import sources

KEPT: Final = (
    # The first checkpoint of the metadata log, and its first leader.
    ("SnapshotHeaderRecord", 0),
    ("KRaftVersionRecord", 0),
    ("VotersRecord", 0),
    ("SnapshotFooterRecord", 0),
    ("LeaderChangeMessage", 0),
    # What a new cluster begins with.
    ("FeatureLevelRecord", 0),
    ("RegisterControllerRecord", 0),
    ("RegisterBrokerRecord", 3),
    ("BrokerRegistrationChangeRecord", 2),
)

HEAD = '''\
"""Generated from shapes/*.shape by `make stubs`: not to be edited.

Codecs as `compiler` writes them, which Python compiles once and keeps, as it does with every module. They lack what
they name, and get it from the compiler, which takes those only whose text has the checksum that it had.
"""
# mypy: ignore-errors
'''


def render() -> str:
    return "\n\n".join([HEAD, *_functions(), _table()])


def _functions() -> Iterator[str]:
    for message, version in KEPT:
        for codec in sources(getattr(messages, message), version):
            yield codec.source.replace(f"def {codec.function}(", f"def {codec.title}(", 1) + "\n"


def _table() -> str:
    made = [codec for message, version in KEPT for codec in sources(getattr(messages, message), version)]
    return "\n".join(["KEPT = {", *(f'    "{one.title}": ({one.checksum}, {one.title}),' for one in made), "}\n"])


if __name__ == "__main__":
    Path(__file__).with_name("kept_codecs.py").write_text(render(), "utf-8")
