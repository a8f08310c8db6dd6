"""The record kernel in both of its forms: compiled, if this machine has it so, and as the file stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.protocol import kernel, kernel_writer
from tests import plain_forms


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
    walker, writer = map(plain_forms.plain_form, ("protocol/kernel.py", "protocol/kernel_writer.py"))
    vars(walker)["rebase"] = writer.rebase
    return _form(name, walker, writer)


PLAIN = plain_form()
COMPILED = _form("compiled", kernel, kernel_writer) if kernel.COMPILED and kernel_writer.COMPILED else None
FORMS = [PLAIN] if COMPILED is None else [PLAIN, COMPILED]
