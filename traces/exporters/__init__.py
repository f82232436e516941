"""Exports a trace to the format of another tool. One file per format."""

import os
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.errors import TraceError
from blkreel.common.files.output_lock import new_output
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.progress import ProgressTask
from blkreel.traces.format.check import check_order
from blkreel.traces.format.trace import Trace
from blkreel.traces.format.writer import output_errors, refuse_output

from . import blkparse, blktrace, csv_table, fio_iolog, oracle_general, perfetto
from .export_format import Account, ExportFormat

FORMATS: dict[str, ExportFormat] = {format_.name: format_ for format_ in (
    csv_table.FORMAT, fio_iolog.FORMAT, blktrace.FORMAT, blkparse.FORMAT, perfetto.FORMAT,
    oracle_general.FORMAT)}


@dataclass(frozen=True)
class Exported:
    """A finished export. rows: of the trace. file_bytes: size of the file."""

    path: Path
    format: ExportFormat
    account: Account
    file_bytes: int


def export_trace(trace: Trace, output: Path, format_: ExportFormat, *, force: bool = False, public: bool = False,
                 progress: ProgressTask | None = None) -> Exported:
    """Write a trace or a run to a file of another format. The file gets its name when it is complete.

    public: whether other users may read the file, which can have the names of programs. Raises UsageError for a trace
    out of order, TraceError for a damaged one or one without rows, OutputExists, and BlkreelError if the disk is full.
    """
    refuse_output(output, force)
    check_order(trace)
    if not trace.rows:
        raise TraceError(f"{trace.name} has no I/O to export")
    account = Account(progress or ProgressTask())
    with output_errors(output), new_output(output, force=force, owner=caller_of_sudo()) as new:
        if not public:
            os.fchmod(new.file.fileno(), 0o600)
        format_.write(trace, new.file, account)
        new.file.seek(0, os.SEEK_END)
        file_bytes = new.file.tell()
        new.publish()
    return Exported(output, format_, account, file_bytes)
