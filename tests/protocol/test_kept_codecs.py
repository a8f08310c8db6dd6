"""Codecs that Python keeps compiled: they are those that would be compiled, or are not taken."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.protocol import keep, messages
from headrace.protocol.compiler import compile_decoder, compile_encoder
from headrace.protocol.kept_codecs import KEPT

ALL = [f"{kind}_{message}_v{version}" for message, version in keep.KEPT for kind in ("encode", "decode")]


def _compile(title: str) -> str:
    """Where the code of the function is from."""
    kind, name, version = title.split("_")
    make = compile_encoder if kind == "encode" else compile_decoder
    made: Any = make(getattr(messages, name), int(version.removeprefix("v")))
    return str(made.__code__.co_filename)


def test_they_are_current() -> None:
    kept = Path(keep.__file__).with_name("kept_codecs.py").read_text("utf-8")
    assert kept == keep.render(), "shapes or the compiler and kept_codecs.py differ: run `make stubs`"


@pytest.mark.parametrize("title", ALL)
def test_one_is_taken_as_long_as_it_would_be_compiled_from_the_same_text(
    title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _compile(title).endswith("kept_codecs.py")
    checksum, codec = KEPT[title]
    monkeypatch.setitem(KEPT, title, (checksum + 1, codec))
    assert _compile(title) == f"<{title}>"


def test_the_first_start_of_a_node_compiles_no_codec() -> None:
    program = """
import builtins

compile_ = builtins.compile
compiled = []
builtins.compile = lambda text, name, *more, **named: compiled.append(name) or compile_(text, name, *more, **named)
from headrace.testing import Cluster

cluster = Cluster().start()
print(*[name for name in compiled if str(name).startswith(("<encode_", "<decode_"))])
cluster.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [], "add them to those that headrace.protocol.keep keeps"
