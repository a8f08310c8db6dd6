"""The examples of the client's page are run, and print what the page says."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path

from tests.broker.nodes import run, running

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\nIt prints\n\n```\n(.*?)```", re.DOTALL)


def test_the_examples_print_what_the_page_says() -> None:
    async def scenario() -> None:
        examples = EXAMPLE.findall(PAGE.read_text())
        assert len(examples) == PAGE.read_text().count("```python")
        # The examples have their own loops, and a clock that the node's in a test knows nothing of.
        async with running(log_message_timestamp_after_max_ms=str(2**63 - 1)) as node:
            for code, printed in examples:
                code = code.replace("127.0.0.1:9092", f"127.0.0.1:{node.endpoints[0].port}")
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    await asyncio.to_thread(exec, code, {"__name__": "example"})
                assert output.getvalue() == printed

    run(scenario())
