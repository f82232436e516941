"""The table of metrics in the documentation, from the registry.

    python -m blkreel.analysis.metrics.definitions.metrics_table docs/method.md     writes the table
"""

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from os.path import commonprefix
from pathlib import Path

from blkreel.common.binning import grouped

from .headline import RELATIVE_PERFORMANCE, headline_metrics, leading_metrics
from .metric import ALL_PACES, Metric
from .registry import CLASS_METRICS, METRICS, ClassMetric

_BEGIN, _END = "<!-- metrics: generated, see make docs -->", "<!-- end of metrics -->"
_DISTRIBUTION = re.compile(r"\.(n|mean_ns|p\d+(_\d+)?_ns|max_ns)$")  # of a path


def table() -> str:
    """The table of metrics in Markdown. Metrics of a class stand once, with CLASS in their key and path. Metrics of one
    distribution are one row, and so are metrics with one definition.
    """
    names = grouped((definition, (keys, paths)) for definition, keys, paths in (
        *_metric_rows([(metric, metric.label) for metric in CLASS_METRICS], "CLASS"),
        *_metric_rows([(metric, metric.title) for metric in METRICS.values() if not metric.op])))
    return "\n".join([
        "| pace | leading metrics | further metrics |", "|---|---|---|", *_headline_rows(),
        "", "| key | title | unit | better | paces | definition | path in `figures` |", "|---|---|---|---|---|---|---|",
        *(f"| {', '.join(keys for keys, _ in rows)} | {' | '.join(definition)} | "
          f"{', '.join(paths for _, paths in rows)} |" for definition, rows in names.items()),
        f"| `{RELATIVE_PERFORMANCE}` | Relative performance |  | higher | all | geometric mean over workloads of "
        "reference drive / drive (drive / reference drive where higher is better) by the first leading metric of each "
        "| in the document of a comparison, outside of `figures` |"])


def _headline_rows() -> Iterator[str]:
    """A row for each run of paces with the same metrics."""
    def metrics(pace: str) -> str:
        leading = leading_metrics([pace])
        secondary = (metric for metric in headline_metrics([pace]) if metric not in leading)
        return " | ".join(", ".join(f"`{metric.key}`" for metric in column) for column in (leading, secondary))

    for columns, paces in groupby(ALL_PACES, metrics):
        yield f"| {', '.join(paces)} | {columns} |"


def _metric_rows(titled: Iterable[tuple[Metric | ClassMetric, str]],
                 prefix: str = "") -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The definition, keys and paths of each metric, or of all that are next to each other and of one distribution."""
    for _, group in groupby(titled, lambda metric_and_title: _DISTRIBUTION.sub("", metric_and_title[0].path)):
        metrics, titles = zip(*group, strict=True)
        last, parent = metrics[-1], metrics[0].path.rpartition(".")[0]
        title, formula = titles[0], last.formula
        if len(metrics) > 1:
            stem = commonprefix(titles).rpartition(" ")[0]
            title = f"{stem}: {', '.join(full.removeprefix(f'{stem} ') for full in titles)}"
        if metrics[0].formula != last.formula:
            measured = last.formula.removeprefix("largest ")
            formula = f"n I/Os; mean, percentiles by nearest rank, x[⌈n p⌉ − 1], and largest of {measured}"
        paths = [f"{prefix}.{metrics[0].path}" if prefix else metrics[0].path,
                 *(metric.path.removeprefix(f"{parent}.") for metric in metrics[1:])]
        paces = "all" if last.paces == ALL_PACES else ", ".join(last.paces)
        yield ((title, last.unit.symbol, last.better, paces, formula),
               ", ".join(f"`{prefix}_{metric.key}`" if prefix else f"`{metric.key}`" for metric in metrics),
               ", ".join(f"`{path}`" for path in paths))


def with_table(text: str) -> str:
    """A Markdown page with the current table between its two markers. Raises ValueError where they are missing."""
    before, begin, tail = text.partition(_BEGIN)
    _, end, after = tail.partition(_END)
    if not begin or not end:
        raise ValueError(f"no markers: {_BEGIN} and {_END}")
    return f"{before}{begin}\n\n{table()}\n\n{end}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
