"""The pages of a node: what it is, whether it lives, whether it serves, and what it has counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace import __version__
from headrace.broker.http import TEXT, HttpReply, HttpRequest
from headrace.broker.metrics import NodeMetrics
from headrace.metrics.exposition import Form

HTML: Final = "text/html; charset=utf-8"
_LINKS: Final = (
    ("/metrics", "metrics, for Prometheus"),
    ("/metrics/partitions", "metrics of each partition"),
    ("/healthz", "whether the process can go on"),
    ("/readyz", "whether clients are served"),
)
_STARTING: Final = "The node is starting.\n"


class Pages:
    """Answers requests."""

    __slots__ = ("_about", "_failure", "_metrics", "_why_not_ready")

    def __init__(
        self,
        about: Callable[[], str],
        failure: Callable[[], str | None],
        why_not_ready: Callable[[], str | None],
        metrics: Callable[[], NodeMetrics | None],
    ) -> None:
        """`about` is one line on which node this is; the next two say what is wrong, or None. `metrics` are there when
        the node has come so far."""
        self._about = about
        self._failure = failure
        self._why_not_ready = why_not_ready
        self._metrics = metrics

    def answer(self, request: HttpRequest) -> HttpReply:
        match request.path:
            case "/metrics" | "/metrics/partitions":
                metrics = self._metrics()
                if metrics is None:
                    return HttpReply(503, TEXT, _STARTING)
                form = form_of(request.accept)
                pages = metrics.pages if request.path == "/metrics" else metrics.partition_pages
                return HttpReply(200, form.value, pages(form))
            case "/healthz":
                return _verdict(self._failure())
            case "/readyz":
                return _verdict(self._failure() or self._why_not_ready())
            case "/":
                return HttpReply(200, HTML, self._index())
        return HttpReply(404, TEXT, f"There is no such page; there are: {', '.join(path for path, _ in _LINKS)}.\n")

    def _index(self) -> str:
        from html import escape  # with a table of all entities, which a start does not need

        links = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>\n' for path, text in _LINKS)
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Headrace</title>\n'
            f"<h1>Headrace {escape(__version__)}</h1>\n<p>{escape(self._about())}</p>\n<ul>\n{links}</ul></html>\n"
        )


def form_of(accept: str) -> Form:
    """OpenMetrics for who asks for it, else what everyone can read."""
    asked = [one.strip() for one in accept.split(",") if one.strip().startswith("application/openmetrics-text")]
    is_ours = any("version=" not in one or "version=1.0.0" in one for one in asked)
    return Form.OPEN_METRICS if is_ours else Form.PROMETHEUS


def _verdict(problem: str | None) -> HttpReply:
    return HttpReply(200, TEXT, "ok\n") if problem is None else HttpReply(503, TEXT, f"{problem}\n")
