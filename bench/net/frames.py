"""What a frame costs in a listener, against a bare loop that cuts and answers frames: `python -m bench.net.frames`.

Both run in processes of their own on uvloop and answer each frame with four bytes. The client sends pre-encoded frames
over one raw socket, some in flight. What is compared is the server's CPU time a frame, in interleaved rounds.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
from typing import cast

REPLY = (4).to_bytes(4) + b"pong"
CASES = {
    "100 B, 64 in flight": (100, 64, 200_000),
    "1 KB, 64 in flight": (1_000, 64, 100_000),
    "1 MB, 4 in flight": (1 << 20, 4, 2_000),
}
ROUNDS = 5


class Bare(asyncio.BufferedProtocol):
    """Reads into one buffer, cuts, answers; nothing else."""

    def __init__(self) -> None:
        self.buffer = bytearray(2 << 20)
        self.view = memoryview(self.buffer)
        self.filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        position = 0
        while self.filled - position >= 4:
            end = position + 4 + int.from_bytes(self.buffer[position : position + 4])
            if end > self.filled:
                break
            self.transport.write(REPLY)
            position = end
        if position:
            rest = self.filled - position
            self.view[:rest] = self.view[position : self.filled]
            self.filled = rest


async def serve(kind: str) -> None:
    if kind == "bare":
        server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
    else:
        from headrace.net.listener import Listener

        listener = Listener("bench", lambda connection, frame: connection.reply([REPLY]))
        _, port = await listener.start("127.0.0.1", 0)
    print(port, flush=True)
    await asyncio.Event().wait()


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def exchange(port: int, frame: bytes, in_flight: int, count: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        group = frame * in_flight
        for _ in range(count // in_flight):
            client.sendall(group)
            left = len(REPLY) * in_flight
            while left:
                left -= len(client.recv(left))


def port_of(server: subprocess.Popen[str]) -> int:
    assert server.stdout is not None
    return int(server.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=("bare", "listener"))
    kind = parser.parse_args().serve
    if kind:
        import uvloop

        uvloop.run(serve(kind))
        return
    kinds = ("bare", "listener")
    command = [sys.executable, "-m", "bench.net.frames", "--serve"]
    servers = {kind: subprocess.Popen([*command, kind], stdout=subprocess.PIPE, text=True) for kind in kinds}
    try:
        ports = {kind: port_of(server) for kind, server in servers.items()}
        print(f"{'':22} {'bare µs':>9} {'listener µs':>12} {'ratio':>6}")
        for name, (size, in_flight, count) in CASES.items():
            frame = size.to_bytes(4) + bytes(size)
            best = dict.fromkeys(kinds, float("inf"))
            for _ in range(ROUNDS):
                for kind, server in servers.items():
                    before = cpu_seconds(server.pid)
                    exchange(ports[kind], frame, in_flight, count)
                    best[kind] = min(best[kind], (cpu_seconds(server.pid) - before) / count * 1e6)
                    time.sleep(0.05)
            print(f"{name:22} {best['bare']:9.2f} {best['listener']:12.2f} {best['bare'] / best['listener']:6.2f}")
    finally:
        for server in servers.values():
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
