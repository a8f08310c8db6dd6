"""Ctrl-C, wherever a command happens to be."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from headrace.cli.connection import run_loop


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_second_ctrl_c_ends_what_the_first_began_to_clean_up() -> None:
    """It comes while code runs, and not while it waits: it must not be lost in what that code does at its end."""
    reached = []

    async def work() -> None:
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

    with pytest.raises(KeyboardInterrupt):
        run_loop(work)
    assert reached == ["told"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
