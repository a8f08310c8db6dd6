"""The page of what passes, made by a run."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compat.tools.run import Section, Step

HEAD = """\
# Kafka's own tools

Every existing Kafka tool is a tool for Headrace. This page is made by `make compat`, which starts a node as a process
of its own, runs Kafka's own Java tools and kcat against it, and looks at what each of them says.
"""

BEFORE_TABLES = """\
The commands are named as in Kafka's `bin` folder and on the shell's path; the node's address (`--bootstrap-server`, or
`-b` of kcat) is left out of them here. A command passes when it ends with the right exit code (0, where none is told)
and shows what is wanted; what is set like `this.*` may be a regular expression.
"""


def page(
    sections: Sequence[Section], conditions: Sequence[tuple[str, str]], unserved: Sequence[tuple[str, str]]
) -> str:
    steps = [step for section in sections for step in section.steps]
    failed = sum(bool(step.why) for step in steps)
    skipped = sum(bool(step.skipped) for step in steps)
    passed = len(steps) - failed - skipped
    parts = [
        HEAD,
        f"**{passed} of {len(steps)} pass, {failed} fail, {skipped} are skipped.**\n",
        table(("what", "which"), conditions),
        BEFORE_TABLES,
    ]
    for section in sections:
        parts.append(f"## {section.title}\n")
        if section.note:
            parts.append(f"{section.note}\n")
        parts.append(table(("command", "shows", "result"), [row(step) for step in section.steps]))
    parts.append("## Not run\n")
    parts.append(table(("tool", "why"), unserved))
    return "\n".join(parts)


def row(step: Step) -> tuple[str, str, str]:
    result = f"**fails**: {step.why}" if step.why else f"skipped: {step.skipped}" if step.skipped else "passes"
    return code(step.line), code(step.wanted), result


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell(text) for text in line)} |\n" for line in lines)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
