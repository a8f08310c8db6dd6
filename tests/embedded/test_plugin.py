"""The pytest plugin in a project of its own, installed from the built wheel into an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROJECT = """
import asyncio

from headrace.client import Client


def say(bootstrap, topic, value):
    async def work():
        async with Client(bootstrap) as client:
            await client.producer().send(topic, value)
            consumer = client.consumer(auto_offset_reset="earliest")
            consumer.assign([(topic, 0)])
            return [record.value for record in await consumer.poll(timeout_s=30)]

    return asyncio.run(work())


def test_a_fresh_topic(headrace_bootstrap, headrace_topic):
    assert headrace_topic.startswith("test_a_fresh_topic-")
    assert say(headrace_bootstrap, headrace_topic, b"one") == [b"one"]


def test_another_fresh_topic(headrace_cluster, headrace_topic):
    assert say(headrace_cluster.bootstrap, headrace_topic, b"two") == [b"two"]


def test_settings_of_the_project(headrace_bootstrap, headrace_cluster):
    name = headrace_cluster.create_topic(partitions=-1)

    async def work():
        async with Client(headrace_bootstrap) as client:
            return await client.admin.describe_topics([name])

    assert len(asyncio.run(work())[name].partitions) == 3
"""
LOADED = """
import sys


def pytest_configure(config):
    assert "headrace.testing.pytest_plugin" in sys.modules
    dear = [name for name in sys.modules if name.startswith("headrace.") and "testing" not in name]
    assert dear == [], f"the plugin imported {dear} at its load"
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600, env=clean | environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("headrace_partitions = no", "headrace_partitions is 'no'; write a whole number from 1 on, as in 3."),
        ("headrace_partitions = 0", "headrace_partitions is '0'; write a whole number from 1 on, as in 3."),
        (
            "headrace_settings = num.partitions",
            "headrace_settings has the line 'num.partitions'; write NAME=VALUE, as in num.partitions=4.",
        ),
    ],
)
def test_a_setting_that_can_not_be_is_one_sentence(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{line}\n")
    (tmp_path / "test_it.py").write_text("def test_it(headrace_topic): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert said in done.stdout.splitlines(), done.stdout + done.stderr
    assert "Traceback" not in done.stdout
    assert "Error:" not in done.stdout


def test_the_plugin_works_from_the_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    source, project, env = tmp_path / "source", tmp_path / "project", tmp_path / "env"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    # Without the compiled kernels, which this is not about: the wheel of a machine that has no compiler.
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source, cwd=tmp_path, CC="false")
    (wheel,) = tmp_path.glob("headrace-*.whl")
    run(sys.executable, "-m", "venv", env, cwd=tmp_path)
    installed = (env / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    run(*installed, "--constraint", ROOT / "constraints.txt", wheel, "pytest", cwd=tmp_path)
    project.mkdir()
    (project / "test_it.py").write_text(PROJECT)
    (project / "conftest.py").write_text(LOADED)
    (project / "pytest.ini").write_text("[pytest]\nheadrace_settings =\n    num.partitions=3\n")
    assert "3 passed" in run(env / "bin" / "python", "-m", "pytest", "-q", cwd=project)
