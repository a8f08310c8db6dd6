"""What importing the package costs above a bare interpreter with uvloop: `python -m bench.protocol.imports`.

CPU time of child processes, interleaved, the best of each: waiting for the disk or for other processes does not count.
"""

import os
import resource
import subprocess
import sys

ROUNDS = 20
PROGRAMS = {
    "uvloop": "import uvloop",
    "and headrace": "import uvloop, headrace",
    "and the protocol": (
        "import uvloop, headrace.protocol.frame, headrace.protocol.messages, headrace.protocol.records, "
        "headrace.protocol.batch_builder, headrace.config"
    ),
}


def cpu_ms(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Without the cache of compiled modules this would time Python's compiler.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def main() -> None:
    best = dict.fromkeys(PROGRAMS, float("inf"))
    for _ in range(ROUNDS):
        for name, program in PROGRAMS.items():
            best[name] = min(best[name], cpu_ms(program))
    for name, ms in best.items():
        print(f"{name:18} {ms:6.1f} ms   {ms - best['uvloop']:+6.1f} ms")


if __name__ == "__main__":
    main()
