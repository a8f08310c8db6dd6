"""The metrics of a node of another cluster, at a port where those of this one might be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _OtherNode(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'headrace_build_info{cluster_id="another"} 1\nheadrace_bytes_in_total{topic="t"} 7\n')

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def metrics_of_another() -> Iterator[str]:
    """host:port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _OtherNode) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{other.server_port}"
        finally:
            other.shutdown()
