"""kcat, where it is installed."""

from __future__ import annotations

import re

from tests.compat.tools import programs
from tests.compat.tools.run import Run

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def run(run: Run) -> None:
    run.begin("kcat")
    if programs.kcat_version() is None:
        run.skip("kcat", "it is not installed (apt install kcat)")
        return
    for codec in CODECS:
        lines = "".join(f"k{number}:{codec} {number}\n" for number in range(10))
        run.tool(f"kcat -P -t cat -K : -z {codec} -X acks=all", given=lines)
    run.tool("kcat -C -t cat -e -q -K :", "k0:none 0\n", "k9:zstd 9\n")
    run.tool("kcat -C -t cat -e -q -o -2", "zstd 8\nzstd 9\n")
    run.tool("kcat -C -t cat -e -q -o s@1 -c 1", "none 0")
    run.tool("kcat -P -t cat -H from=kcat -X enable.idempotence=true", given="with a header\n")
    run.tool("kcat -C -t cat -e -q -o 50 -f '%t %p %o %h %s\\n'", "cat 0 50 from=kcat with a header")
    run.tool("kcat -Q -t cat:0:1", "cat [0] offset 0")
    run.tool("kcat -Q -t cat:0:-1", "cat [0] offset 51")
    run.tool("kcat -Q -t cat:0:-2", "cat [0] offset 0")
    run.tool("kcat -L -t cat", 'topic "cat" with 1 partitions', "partition 0, leader 1, replicas: 1, isrs: 1")
    run.tool("kcat -L -J -t cat", re.compile(r'"topic":"cat","partitions":\[\{"partition":0,"leader":1'))
    run.tool("kcat -G cats -e -q -X auto.offset.reset=earliest cat", "none 0", "with a header")
