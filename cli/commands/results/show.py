"""`blkreel results show`: one result of a catalog."""

from collections.abc import Iterator
from pathlib import Path

import click

from blkreel.analysis.metrics.definitions.headline import HEADLINE
from blkreel.benchmarks.catalog.result import Result
from blkreel.cli.options import catalog as options
from blkreel.cli.options.detail import detail_options
from blkreel.cli.options.types import as_json
from blkreel.common import units
from blkreel.common.console import Detail
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable

from .list import value_words

_MOST_METRICS = 12


@click.command()
@click.argument("id_", metavar="ID")
@options.catalog
@detail_options("everything")
@as_json
def command(id_: str, catalog: Path | None, detail: Detail, as_json: bool) -> None:
    """Show one result of a catalog. ID: its id, or at least 4 digits that it begins with.

    \b
    blkreel results show 28391376
    blkreel results show 28391376 --json | jq .result.metrics.read_p99
    """
    result = options.opened(catalog).entry(id_)
    if as_json:
        print_json({"version": 1, "result": result})
        return
    for line in _lines(result, detail.everything):
        print(printable(line))


def _lines(result: Result, everything: bool) -> Iterator[str]:
    drive, size_bytes = result["drive"], result["drive"]["capacity_bytes"]
    yield f"{result['id']}: {result['label']}, {result['workload']['title']}"
    facts = {
        "drive": ", ".join(filter(None, (
            drive["model"], drive["firmware"] and f"firmware {drive['firmware']}", units.size(size_bytes)
            if size_bytes else "", drive["interface"], drive["unit"] and f"unit {drive['unit'][:8]}"))),
        "workload": f"{result['workload']['name']}, checksum {result['workload']['checksum'][:12] or 'unknown'}",
        "pace": result["pace"], "state": result["state"],
        "date": result["started_at"] or "unknown",
        "host": ", ".join(filter(None, (result["host"], result["kernel"] and f"kernel {result['kernel']}",
                                        result["blkreel"] and f"blkreel {result['blkreel']}"))),
        "path": result["path"] + ("" if Path(result["path"]).exists() else " (not there now)"),
        "verdict": result["verdict"]["level"]}
    for name, text in facts.items():
        if text:
            yield f"  {name:9} {text}"
    for reason in result["verdict"]["reasons"]:
        yield f"            {reason['level']}: {reason['text']}"
    first = [result["headline"], *(metric.key for metric in HEADLINE)]
    keys = [key for key in dict.fromkeys([*first, *result["metrics"]]) if key in result["metrics"]]
    listed = keys if everything else keys[:_MOST_METRICS]
    width = max(map(len, listed), default=0)
    for key in listed:
        metric = result["metrics"][key]
        sure = ""
        if metric["low"] is not None and metric["high"] is not None:
            sure = f" ({value_words(metric['low'], metric['unit'])} to {value_words(metric['high'], metric['unit'])})"
        yield f"  {key:{width}}  {value_words(metric['value'], metric['unit'])}{sure}"
    if len(listed) < len(keys):
        yield f"  {len(keys) - len(listed)} more metrics: --all"
