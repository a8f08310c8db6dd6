"""What is compiled by declarations beside it: those and the classes must say the same, or one form has what the other
has not. A class has its attributes in `__slots__`, and so has its declaration, all of them public."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
DECLARED = [path for path in sorted(SOURCE.rglob("*.pxd")) if path.with_suffix(".py").exists()]


class Declared:
    """One `cdef class`."""

    def __init__(self, body: str) -> None:
        self.attributes = set(re.findall(r"^    cdef public .* (\w+)$", body, re.MULTILINE))
        self.methods = set(re.findall(r"^    cpdef (?:[\w ]+ )?(\w+)\(", body, re.MULTILINE))
        self.others = [line for line in body.splitlines() if not re.match(r"    (cdef public |cpdef |@)|$", line)]


def declared_in(path: Path) -> dict[str, Declared]:
    parts = re.split(r"^cdef class (\w+)(?:\(\w+\))?:\n", path.read_text(), flags=re.MULTILINE)
    return {name: Declared(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def classes_in(path: Path) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}


def slots_of(node: ast.ClassDef) -> set[str]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__slots__":
            return set(ast.literal_eval(statement.value))
    return set()


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.stem)
def test_declarations_are_those_of_the_classes(path: Path) -> None:
    classes = classes_in(path.with_suffix(".py"))
    for name, declared in declared_in(path).items():
        node = classes[name]
        assert declared.attributes == slots_of(node), name
        assert declared.methods <= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}, name
        assert declared.others == [], name


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.stem)
def test_what_has_declarations_is_compiled_without_guesses(path: Path) -> None:
    """Annotations are for people and mypy: compiled, they would refuse what inherits. And None is no crash."""
    first = path.with_suffix(".py").read_text().partition("\n")[0]
    assert first == "# cython: language_level=3, annotation_typing=False, nonecheck=True"
