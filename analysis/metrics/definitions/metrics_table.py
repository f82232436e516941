"""The table of metrics in the documentation, from the registry.

    python -m blkreel.analysis.metrics.definitions.metrics_table docs/method.md     writes the table
"""

import sys
from pathlib import Path

from .headline import RELATIVE_PERFORMANCE, headline_metrics, leading_metrics
from .metric import ALL_PACES, Metric
from .registry import CLASS_METRICS, METRICS, ClassMetric

_BEGIN, _END = "<!-- metrics: generated, see make docs -->", "<!-- end of metrics -->"


def table() -> str:
    """The table of metrics in Markdown. Metrics of a class stand once, with CLASS in their key and path."""
    def cells(metric: Metric | ClassMetric, prefix: str, title: str) -> str:
        paces = "all" if metric.paces == ALL_PACES else ", ".join(metric.paces)
        key = f"`{f'{prefix}_{metric.key}' if prefix else metric.key}`"
        path = f"`{f'{prefix}.{metric.path}' if prefix else metric.path}`"
        return f"| {key} | {title} | {metric.unit.symbol} | {metric.better} | {paces} | {metric.formula} | {path} |"

    return "\n".join([
        "| pace | leading metrics | further metrics |", "|---|---|---|", *map(_headline_row, ALL_PACES),
        "", "| key | title | unit | better | paces | definition | path in `figures` |", "|---|---|---|---|---|---|---|",
        *(cells(metric, "CLASS", metric.label) for metric in CLASS_METRICS),
        *(cells(metric, "", metric.title) for metric in METRICS.values() if not metric.op),
        f"| `{RELATIVE_PERFORMANCE}` | Relative performance |  | higher | all | geometric mean over workloads of "
        "reference drive / drive (drive / reference drive where higher is better) by the first leading metric of each "
        "| in the document of a comparison, outside of `figures` |"])


def _headline_row(pace: str) -> str:
    leading = leading_metrics([pace])
    others = (metric for metric in headline_metrics([pace]) if metric not in leading)
    lead, further = (", ".join(f"`{metric.key}`" for metric in metrics) for metrics in (leading, others))
    return f"| {pace} | {lead} | {further} |"


def with_table(text: str) -> str:
    """A Markdown page with the current table between its two markers. Raises ValueError where they are missing."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"no markers: {_BEGIN} and {_END}")
    return f"{before}{begin}\n\n{table()}\n\n{end}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
