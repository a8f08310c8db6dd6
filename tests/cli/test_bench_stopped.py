"""A measurement that is stopped by a signal: what was measured is told, and the topic that was made is gone."""

from __future__ import annotations

import signal

import pytest

from tests.cli.running import Cli
from tests.cli.terminal import TIMEOUT_S, Terminal


@pytest.mark.parametrize("client", ["headrace", "librdkafka"])
@pytest.mark.parametrize(
    ("number", "code", "cause"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")]
)
def test_a_signal_ends_a_measurement_which_is_told(
    cli: Cli, client: str, number: signal.Signals, code: int, cause: str
) -> None:
    """As fast as it goes, so that librdkafka calls back all the time: an exception in there was a SystemError."""
    options = ("--warmup", "0", "--duration", "10m", "--client", client, "--bootstrap", cli.bootstrap)
    terminal = Terminal("bench", "produce", *options)
    terminal.until("records/s")
    terminal.process.send_signal(number)
    terminal.until("\0")
    assert terminal.process.wait(TIMEOUT_S) == code, terminal.shown
    assert f"Stopped by {cause}; what was measured until then is above." in terminal.shown
    assert not [name for name in cli.done("topic", "list", "--names").out.split() if name in terminal.shown]
