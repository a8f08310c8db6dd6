"""A value that an option or an argument can't have, in our words. Typer hands on those of its validator."""

from __future__ import annotations

import re
from typing import Any, Final

_CHOICES: Final = re.compile(r"'.*' is not one of (.*?)\.?", re.DOTALL)


def sentence_of(error: Any) -> str:
    """What is wrong with a command line, by an exception of Typer's; empty where the help was printed instead."""
    found = getattr(error.__cause__, "errors", None)  # of pydantic's ValidationError
    parameter = getattr(error, "param", None)
    if found is None or parameter is None:
        if begun := _options_begun(error):
            error.possibilities = begun
        return str(error.format_message()).strip()
    first = found()[0]
    given, context = first["input"], first.get("ctx", {})
    if isinstance(given, list | tuple):
        given = next(iter(given), "")
    match first["type"]:
        case "greater_than_equal":
            allowed = f"at least {context['ge']}"
        case "less_than_equal":
            allowed = f"at most {context['le']}"
        case "int_parsing" | "int_type" | "int_from_float":
            allowed = "a whole number"
        case "float_parsing" | "float_type":
            allowed = "a number"
        case "string_unicode":
            return f"{name_of(parameter)} is no UTF-8"
        case "value_error" if choices := _CHOICES.fullmatch(str(context["error"])):
            allowed = f"one of {choices[1].replace(chr(39), '')}"
        case _:
            return f"{name_of(parameter)}: {first['msg'].removeprefix('Value error, ')}"
    return f"{name_of(parameter)} must be {allowed}, not {str(given)!r}"


def _options_begun(error: Any) -> list[str]:
    """Those that an unknown one is the beginning of: likelier meant than what merely looks alike."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if context is None or not option.startswith("--") or not hasattr(error, "possibilities"):
        return []
    return [name for one in context.command.params for name in one.opts if name.startswith(option)]


def name_of(parameter: Any) -> str:
    """The long name of an option, and an argument as the help calls it."""
    if parameter.param_type_name == "argument":
        return str(parameter.make_metavar(None)) if parameter.metavar is None else str(parameter.metavar)
    return max(parameter.opts, key=len, default=str(parameter.name))
