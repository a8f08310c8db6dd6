"""The record kernel in both of its forms: compiled, if this machine has it so, and as the file stands."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.protocol import kernel, kernel_writer


@dataclass
class Form:
    name: str
    Records: type[kernel.Records]
    encode: Any
    encode_columns: Any
    encode_rows: Any
    gather: Any
    rebase: Any
    validity: Any


def _from_source(name: str) -> ModuleType:
    """The module as plain Python, even where a compiled one hides it."""
    path = Path(kernel_writer.__file__).with_name(f"{name}.py")
    spec = spec_from_file_location(f"plain_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _form(name: str, walker: Any, writer: Any) -> Form:
    return Form(
        name,
        walker.Records,
        writer.encode,
        writer.encode_columns,
        writer.encode_rows,
        writer.gather,
        writer.rebase,
        writer.validity,
    )


def plain_form(name: str = "plain") -> Form:
    walker, writer = _from_source("kernel"), _from_source("kernel_writer")
    assert not walker.COMPILED
    assert not writer.COMPILED
    vars(walker)["rebase"] = writer.rebase
    return _form(name, walker, writer)


PLAIN = plain_form()
COMPILED = _form("compiled", kernel, kernel_writer) if kernel.COMPILED and kernel_writer.COMPILED else None
FORMS = [PLAIN] if COMPILED is None else [PLAIN, COMPILED]
