"""What a workload writes to the media of a drive, by the drive's own counters."""

from collections.abc import Sequence
from functools import reduce
from operator import add

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.metrics.definitions.headline import MEDIA_WRITES_PER_DAY, WRITE_AMPLIFICATION
from blkreel.analysis.metrics.write_amplification import WriteCounts, why_unknown, write_amplification
from blkreel.analysis.report.commands import column_of, path_of
from blkreel.analysis.report.document import Entry
from blkreel.analysis.report.drives_file import DrivesFile
from blkreel.common.units import digits

_DAY_S = 86_400


def endurance(entries: Sequence[Entry], id_: str, drives_file: DrivesFile | None = None) -> Chart | None:
    """entries: of a report.document.Section. None where no drive has a counter of media writes."""
    counted = [(entry, counts) for entry in entries if (counts := _counts(entry))]
    if not counted:
        return None
    columns = (Column("drive", "Drive"), column_of(WRITE_AMPLIFICATION), Column("interval", "Interval"),
               Column("host_bytes", "Written to the drive", "size", formula="by its counter, of all its runs"),
               Column("media_bytes", "Written to its media", "size", formula="by its counter, of all its runs"),
               column_of(MEDIA_WRITES_PER_DAY),
               Column("rated_share_per_day", "Of rated endurance per day", "share",
                      formula="bytes written * 24 h / duration of the trace / endurance_tbw of drives.toml",
                      better="lower"))
    rows = tuple(_row(entry, counts, drives_file) for entry, counts in counted)
    shown = tuple(column for column in columns
                  if any(row.values.get(column.key) is not None or column.key in row.why for row in rows))
    notes = ["The interval holds the factor for certain: each counter is known to one of its steps.",
             "What a drive moves after the run, from its cache for instance, is not in it."]
    without = [entry.shown["label"] for entry in entries if not _counts(entry)]
    if without:
        notes.append(f"Without a counter of media writes: {', '.join(without)}.")
    return Chart(id_, WRITE_AMPLIFICATION.title, Table("Writes by the counters of the drives", shown, rows),
                 notes=tuple(notes))


def _counts(entry: Entry) -> WriteCounts | None:
    """Of all runs of an entry together; None if one of them has none."""
    found = [WriteCounts.of(run["run"]) for run in entry.shown["runs"]]
    known = [counts for counts in found if counts]
    return reduce(add, known) if known and len(known) == len(found) else None


def _row(entry: Entry, counts: WriteCounts, drives_file: DrivesFile | None) -> Row:
    shown = entry.shown
    factor, in_bytes = write_amplification(counts), counts.unit == "B"
    captured_ns = sum(((run["run"] or {}).get("source") or {}).get("duration_ns") or 0 for run in shown["runs"])
    written = sum(run["figures"]["write"]["bytes"] for run in shown["runs"])
    per_day = written * _DAY_S * 10**9 / captured_ns if captured_ns else None
    drive = drives_file.find(shown["label"], shown["drive"].get("model") or "") if drives_file else None
    rated_bytes = drive.endurance_tbw * 1e12 if drive and drive.endurance_tbw else None
    reason = why_unknown(counts)
    why = dict.fromkeys(("interval", MEDIA_WRITES_PER_DAY.column), "not known") | {WRITE_AMPLIFICATION.column: reason}
    return Row({"drive": shown["label"], WRITE_AMPLIFICATION.column: factor.value if factor else None,
                "interval": f"{digits(factor.low)} to {digits(factor.high)}" if factor else None,
                "host_bytes": counts.host if in_bytes else None, "media_bytes": counts.media if in_bytes else None,
                MEDIA_WRITES_PER_DAY.column: round(factor.value * per_day) if factor and per_day else None,
                "rated_share_per_day": per_day / rated_bytes if per_day and rated_bytes else None},
               shown["label"], why if reason else {},
               path=path_of(shown))
