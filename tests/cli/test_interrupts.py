"""Ctrl-C and SIGTERM, wherever a command happens to be."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from headrace import cli
from headrace.cli import interrupts, main
from headrace.cli.connection import run_loop


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


SECOND = """
import asyncio, os, signal

from headrace.cli.connection import run_loop

reached = []


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


async def work():
    asyncio.get_running_loop().call_soon(interrupt)
    try:
        try:
            await asyncio.sleep(3600)
        finally:
            reached.append("told")
            interrupt()
    finally:
        await asyncio.wait_for(asyncio.sleep(3600), timeout=10)
        reached.append("never")


try:
    run_loop(work)
except KeyboardInterrupt:
    assert reached == ["told"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
else:
    raise AssertionError("it is to be raised")
"""


def test_a_second_ctrl_c_ends_what_the_first_began_to_clean_up() -> None:
    """It comes while code runs, and not while it waits: it must not be lost in what that code does at its end.

    In a process of its own, as every command is.
    """
    subprocess.run([sys.executable, "-c", SECOND], check=True, timeout=60)


def test_a_ctrl_c_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:

        async def work() -> str:
            interrupt()
            await asyncio.sleep(0)
            return "done"

        assert run_loop(work) == "done"
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupting:
    """A member of a class at whose making Ctrl-C comes, as it may while modules are imported."""

    def __set_name__(self, owner: type, name: str) -> None:
        interrupt()


def test_a_ctrl_c_while_a_class_is_made_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, command: cli.Command) -> object:
        return type("Made", (), {"member": Interrupting()})

    monkeypatch.setattr(cli, "load", load)
    assert main(["topic", "list"]) == 130


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


SIGTERMS = """
import asyncio, os, signal

from headrace.cli import interrupts, main
from headrace.cli.connection import run_loop


def told(call, expected):
    try:
        call()
    except KeyboardInterrupt:
        assert (interrupts.exit_code(), interrupts.cause()) == expected, (interrupts.exit_code(), interrupts.cause())
    else:
        raise AssertionError("it is to be raised")


async def work():
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
    await asyncio.sleep(3600)


with interrupts.heard():
    told(lambda: run_loop(work), (143, "SIGTERM"))
    told(lambda: run_loop(work), (143, "SIGTERM"))
    told(lambda: os.kill(os.getpid(), signal.SIGTERM), (143, "SIGTERM"))
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
with interrupts.heard():
    told(lambda: os.kill(os.getpid(), signal.SIGINT), (130, "Ctrl-C"))
"""


def test_sigterm_is_what_ctrl_c_is_and_has_its_own_exit_code() -> None:
    """In a loop and out of it, and in the next loop of the same command, as a bench has three."""
    subprocess.run([sys.executable, "-c", SIGTERMS], check=True, timeout=60)


def test_a_sigterm_that_somebody_else_has_is_let_be() -> None:
    for theirs in (signal.SIG_IGN, lambda number, frame: None):
        before = signal.signal(signal.SIGTERM, theirs)
        try:

            async def work() -> str:
                terminate()
                await asyncio.sleep(0)
                return "done"

            with interrupts.heard():
                assert run_loop(work) == "done"
            assert signal.getsignal(signal.SIGTERM) is theirs
        finally:
            signal.signal(signal.SIGTERM, before)


COUNTED = """
import os, signal

from headrace.cli import interrupts, main

with interrupts.heard():
    with interrupts.counted() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.count == 2
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it is to be raised")
"""


def test_where_nothing_may_be_raised_they_are_counted() -> None:
    subprocess.run([sys.executable, "-c", COUNTED], check=True, timeout=60)


def test_a_node_that_does_not_start_leaves_signals_to_who_had_them() -> None:
    """A program that calls `main` goes on, and is to hear Ctrl-C."""
    before = [signal.getsignal(number) for number in interrupts.CAUSES]
    assert main(["serve", "--listen", "nowhere"]) == 2
    assert [signal.getsignal(number) for number in interrupts.CAUSES] == before
