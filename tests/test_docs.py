"""The docs say what is so: generated pages are current, links lead somewhere, and what is told to be run can be."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.cli import COMMANDS
from headrace.config.page import page

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_page_of_settings_is_current() -> None:
    assert TEXTS["docs/settings.md"] == page(), "settings have changed: run make docs"


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_to_files_that_exist(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXTS[name])
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (ROOT / name).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_told_to_be_made_is_a_target(name: str) -> None:
    assert set(re.findall(r"(?:`|^|[;(] ?)make ([a-z]+)", TEXTS[name], re.MULTILINE)) <= targets()


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_told_to_be_run_is_a_command(name: str) -> None:
    shown = re.sub(r"```text\n.*?```", "", TEXTS[name], flags=re.DOTALL)  # what a program says
    told = set(re.findall(r"(?:`|^)headrace ([a-z]+)", shown, re.MULTILINE))
    assert told <= COMMANDS.keys()


def test_every_decision_is_listed() -> None:
    decisions = {page.name for page in (ROOT / "docs" / "decisions").glob("0*.md")}
    listed = re.findall(r"\((0[^)]+\.md)\)", TEXTS["docs/decisions/README.md"])
    assert sorted(listed) == sorted(decisions)


def test_the_readme_opens_with_what_it_is_and_two_commands() -> None:
    opening = TEXTS["README.md"].split("\n## ")[0]
    assert re.findall(r"^make (\w+)", opening, re.MULTILINE) == ["up", "test"]


def test_the_example_in_the_readme_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXTS["README.md"], re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})


def test_the_first_example_of_the_page_on_testing_does_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.findall(r"```python\n(.*?)```", TEXTS["docs/testing.md"], re.DOTALL)[0]
    exec(compile(example, "docs/testing.md", "exec"), {})
    assert capsys.readouterr().out == "there it is\n"


def test_make_help_lists_every_target() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert set(re.findall(r"^  make (\w+)", shown, re.MULTILINE)) == set(phony[1].split())
