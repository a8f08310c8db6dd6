"""What set-up rests on: pins that hold everywhere, an extension that may fail, a kernel that is not stale."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).parents[1]
COMPILED = [path for path in (ROOT / "src").rglob("*.py") if path.read_text().startswith("# cython:")]
PINS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]


def name_of(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_every_pin_is_exact_and_names_no_host() -> None:
    assert [pin for pin in PINS if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin)] == []


def test_everything_that_is_asked_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    wanted = {name_of(requirement) for requirements in lists for requirement in requirements}
    assert wanted - {name_of(pin) for pin in PINS} == set()


@pytest.mark.parametrize("source", COMPILED, ids=lambda source: source.stem)
def test_a_compiled_module_is_not_older_than_its_source(source: Path) -> None:
    """It would hide the edits of its source from every other test."""
    declarations = source.with_suffix(".pxd")
    written = max(path.stat().st_mtime for path in (source, declarations) if path.exists())
    stale = [path.name for path in source.parent.glob(f"{source.stem}.*.so") if path.stat().st_mtime < written]
    assert stale == [], "what is compiled is stale: run make setup"


def test_what_is_compiled_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module beside one that did not compile would look for that one's C layout, and could not be imported."""

    def build_extension(command: build_ext, ext: Extension) -> None:
        if ext.name == "two":
            raise CompileError("there is no room on the disk")
        Path(command.get_ext_fullpath(ext.name)).touch()

    monkeypatch.setattr(build_ext, "build_extension", build_extension)
    command = runpy.run_path(str(ROOT / "setup.py"))["AllOrNone"](Distribution())
    command.build_lib = str(tmp_path)
    for names, built in (("one", "three"), 2), (("one", "two", "three"), 0):
        command.extensions = [Extension(name, [], optional=True) for name in names]
        command.build_extensions()
        assert len(list(tmp_path.iterdir())) == built


def test_a_worker_that_imports_setup_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where processes are not forked, those that write C import it first, and would start others for ever."""
    monkeypatch.setattr("Cython.Build.cythonize", lambda *_, **__: pytest.fail("it compiles"))
    runpy.run_path(str(ROOT / "setup.py"), run_name="__mp_main__")


def test_the_build_asks_for_a_cython_that_can_compile_this() -> None:
    """`match` is compiled since 3.3: those before crash on it, and nothing is installed at all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [project["build-system"]["requires"], *project["project"]["optional-dependencies"].values()]
    asked = [requirement for requirements in lists for requirement in requirements if name_of(requirement) == "cython"]
    assert [re.split("[>=<,]+", requirement)[1] for requirement in asked] == ["3.3", "3.3"]


def test_set_up_runs_again_when_what_it_depends_on_changes() -> None:
    rules = dict(re.findall(r"^(\$\(VENV\)/\.\w+): (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"pyproject.toml", "setup.py", "constraints.txt"} <= set(rules["$(VENV)/.packages"].split())
    assert {"$(VENV)/.packages", "$(COMPILED)"} <= set(rules["$(VENV)/.kernel"].split())


def test_ci_runs_make_test() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert (ROOT / ".ci" / "run").read_text().endswith("exec make test\n")


@pytest.mark.parametrize("python", ["/nonexistent/python3", "false"])
def test_no_suitable_python_is_one_sentence(python: str, tmp_path: Path) -> None:
    """In a folder of its own, so that it makes nothing here."""
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "setup.sh"
    script.write_text((ROOT / "tools" / "setup.sh").read_text())
    done = subprocess.run(
        ["sh", script, "packages"], capture_output=True, text=True, check=False, env={**os.environ, "PYTHON": python}
    )
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: Python 3.11 or newer is needed.")
    assert done.stderr.count("\n") == 1


def test_make_up_runs_a_node_and_hands_signals_on(tmp_path: Path) -> None:
    """With options that the Makefile passes on. Ctrl-C and SIGTERM must reach the node itself."""
    arguments = f"--data {tmp_path / 'data'} --listen 127.0.0.1:0"
    recipe = subprocess.run(
        ["make", "--silent", "--dry-run", "up", f"ARGS={arguments}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    with subprocess.Popen(
        ["sh", "-c", recipe], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as node:
        assert node.stdout is not None
        assert node.stdout.readline().startswith("headrace is ready on 127.0.0.1:")
        node.terminate()
        assert node.wait() == 0
