"""The text that Prometheus scrapes, in its own format (0.0.4) or as OpenMetrics 1.0, whichever was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from headrace.metrics.histogram import BOUNDS, Histogram
from headrace.metrics.table import Kind, Metric

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_TEXT_HELP_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


class Form(Enum):
    """What the text is, by its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @property
    def end(self) -> str:
        return "# EOF\n" if self is Form.OPEN_METRICS else ""


def labels(names: Iterable[str], values: Iterable[object]) -> str:
    """`api="Produce",error="NONE"`, as it stands between the braces."""
    return ",".join(f'{name}="{escape(str(value))}"' for name, value in zip(names, values, strict=True))


def escape(text: str) -> str:
    return text.translate(_ESCAPES)


def number(value: float) -> str:
    """As both formats write it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(value) if isinstance(value, int) else repr(value)


def header(form: Form, name: str, kind: Kind, text: str) -> str:
    if form is Form.OPEN_METRICS:
        # A family of counters goes without the ending that its samples have.
        name = name.removesuffix("_total") if kind is Kind.COUNTER else name
        return f"# HELP {name} {text.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind.value}\n"
    return f"# HELP {name} {text.translate(_TEXT_HELP_ESCAPES)}\n# TYPE {name} {kind.value}\n"


def header_of(form: Form, metric: Metric) -> str:
    return header(form, metric.name, metric.kind, metric.text)


def sample(name: str, labelled: str, value: float) -> str:
    return f"{name}{{{labelled}}} {number(value)}\n" if labelled else f"{name} {number(value)}\n"


def family(form: Form, metric: Metric, samples: Mapping[str, float]) -> str:
    """All of one metric, the samples by their labels. Nothing at all when there are none."""
    if not samples:
        return ""
    return header_of(form, metric) + "".join(sample(metric.name, key, value) for key, value in samples.items())


def histogram(name: str, labelled: str, found: Histogram) -> str:
    """The samples of one histogram, in seconds."""
    before = f"{labelled}," if labelled else ""
    braces = f"{{{labelled}}}" if labelled else ""
    counts = found.cumulative()
    lines = [
        f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
        for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True)
    ]
    lines.append(f"{name}_sum{braces} {found.sum_ns / 1e9!r}\n{name}_count{braces} {counts[-1]}\n")
    return "".join(lines)
