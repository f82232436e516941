"""`blkreel export`: convert a trace to the format of another tool."""

from collections.abc import Mapping
from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.types import NOT_TRUSTWORTHY, OUTPUT, as_json, force, public
from blkreel.cli.ui.progress import progress
from blkreel.common.console import notice
from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable
from blkreel.common.units import counted, format_bytes
from blkreel.traces.exporters import FORMATS, Exported, export_trace
from blkreel.traces.format.reader import open_trace

_CHROME = ("chrome-trace", "chrome", "systrace", "trace-event")
_ALIASES = {"fio": "iolog3", "oraclegeneral": "oracle-general", "libcachesim": "oracle-general",
            **dict.fromkeys(_CHROME, "perfetto")}


class _Format(click.Choice):  # type: ignore[type-arg]
    """A name of FORMATS, or a common name of one of them."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = _ALIASES.get(value.lower(), value.lower())
        if name not in FORMATS:
            raise UsageError(f"--format {value}: no such format",
                             did_you_mean(name, FORMATS, f"use one of: {', '.join(FORMATS)}"))
        if value.lower() in _CHROME:
            notice(f"--format {value}: written as perfetto, which ui.perfetto.dev reads too; for the JSON of "
                   "chrome://tracing: traceconv json FILE FILE.json")
        return name


@click.command()
@click.argument("trace", type=click.Path(readable=False), shell_complete=completion.traces)
@click.option("--format", "format_name", required=True, type=_Format(list(FORMATS)), metavar="NAME",
              help=f"Format of the file: {', '.join(FORMATS)}.")
@click.option("-o", "--output", required=True, type=OUTPUT, help="File to write.")
@force
@public
@as_json
def command(trace: str, format_name: str, output: Path, force: bool, public: bool, as_json: bool) -> int:
    """Convert a trace or a run to the format of another tool.

    Values and I/Os that the format cannot express are counted by name. Exit code 3 if the file lacks I/Os of the
    trace.

    \b
    blkreel export game.parquet --format csv -o game.csv
    blkreel export game.parquet --format iolog3 -o game.iolog
    blkreel export sample:game-load --format oracle-general -o game.oracleGeneral.bin
    """
    format_ = FORMATS[format_name]
    opened = open_trace(trace)
    with progress(f"exporting {format_.name}", opened.rows) as task:
        result = export_trace(opened, output, format_, force=force, public=public, progress=task)
    account = result.account
    if as_json:
        print_json({"version": 1, "path": str(result.path), "source": str(opened.path), "format": format_.name,
                    "rows": account.rows, "records": account.records, "file_bytes": result.file_bytes,
                    "omitted": account.omitted, "not_expressed": account.not_expressed})
    else:
        _show(result)
    if account.omitted:
        notice(f"{format_.name} has no record for {_listed(account.omitted)}")
    if account.not_expressed:
        notice(f"{format_.name} does not express {_listed(account.not_expressed)}")
    return NOT_TRUSTWORTHY if account.omitted else 0


def _show(result: Exported) -> None:
    account = result.account
    print(f"{printable(result.path)}: {counted(account.records, 'record')} of {counted(account.rows, 'I/O')}, "
          f"{format_bytes(result.file_bytes)}")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({counted(count, 'I/O')})" for name, count in sorted(counts.items()))
