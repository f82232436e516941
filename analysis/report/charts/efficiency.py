"""What a drive does with its power and for its price, and what a workload writes to its media, where known."""

from collections.abc import Sequence
from dataclasses import dataclass

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.scatter import scatter
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Datum, Point
from blkreel.analysis.metrics.definitions.headline import MEDIA_WRITES_PER_DAY, READ_THROUGHPUT, WRITE_AMPLIFICATION
from blkreel.analysis.metrics.write_amplification import WriteCounts, why_unknown, write_amplification
from blkreel.analysis.report.beside import of_entry
from blkreel.analysis.report.commands import column_of, path_of
from blkreel.analysis.report.document import Entry
from blkreel.analysis.report.drives_file import Drive, DrivesFile
from blkreel.common.binning import sum_of
from blkreel.common.printable import within_sentence
from blkreel.common.units import digits
from blkreel.traces.format.metadata_types import Run

_MB_PER_J = ("(bytes read + written) / (mean power * time from the run's first I/O to its end), idle time included: "
             "MB/J is MB/s/W")
_BESIDE = "the bytes of the background, which cost energy too, are not counted"
_DIRECTION = "Up and to the left is better."
_DAY_S = 86_400


@dataclass(frozen=True)
class _Energy:
    """data_bytes: None beside a background, whose bytes cost energy, too, and are in no figure of the run."""

    document: Datum
    joules: float
    watts: float
    wall_ns: int
    data_bytes: int | None
    meter: str

    @property
    def mb_per_j(self) -> float | None:
        """Gaps of the meter are of the mean power."""
        return None if self.data_bytes is None else self.data_bytes * 1e3 / (self.watts * self.wall_ns)


def efficiency(entries: Sequence[Entry], id_: str, order: Sequence[str]) -> Chart | None:
    """entries: of a report.document.Section. None where no run has a measured power."""
    measured = [energy for entry in entries if (energy := _energy(entry.document))]
    if not measured:
        return None
    columns = (Column("drive", "Drive"),
               Column("efficiency_mb_per_j", "Efficiency", "number", "MB/J", _MB_PER_J, better="higher"),
               Column("average_w", "Power", "number", "W", "energy / time that the meter covered", better="lower"),
               Column("energy_j", "Energy", "number", "J", "of all its runs"), Column("data_bytes", "Data", "size"),
               Column("meter", "Meter"))
    table = Table("Energy over whole runs", columns, tuple(
        Row({"drive": drive.document["label"], "efficiency_mb_per_j": drive.mb_per_j, "average_w": drive.watts,
             "energy_j": drive.joules, "data_bytes": drive.data_bytes, "meter": drive.meter}, drive.document["label"],
            why=dict.fromkeys(("efficiency_mb_per_j", "data_bytes"), _BESIDE) if drive.data_bytes is None else {},
            path=path_of(drive.document)) for drive in sorted(measured, key=lambda drive: -(drive.mb_per_j or 0))))
    points = [Point(drive.document["label"], "", drive.watts, drive.mb_per_j) for drive in measured
              if drive.mb_per_j is not None]
    notes = [f"{_DIRECTION} Under one arrival pattern all drives move the same data, so power decides."
             if points else f"No efficiency: {_BESIDE}."]
    notes += _missing("Power not measured", entries, [drive.document for drive in measured])
    style = SeriesStyle.of_entries([drive.document for drive in measured], order)
    spec = scatter("Data per energy against average power, by drive", points, style, Axis("average power", "W"),
                   Axis("efficiency", "MB/J"))
    return Chart(id_, "Efficiency", table, spec, notes=tuple(notes))


def value(entries: Sequence[Entry], id_: str, order: Sequence[str], drives_file: DrivesFile | None) -> Chart | None:
    """Read throughput against price. entries: of a report.document.Section.

    None without prices. A chart has one currency, that of most drives.
    """
    priced: list[tuple[Datum, Drive, float, float]] = []
    for entry in entries:
        label, model = entry.document["label"], entry.document["drive"].get("model") or ""
        drive = drives_file.find(label, model) if drives_file else None
        rate = entry.document["headline"][READ_THROUGHPUT.key]["value"]
        if drive and drive.price is not None and rate is not None:
            priced.append((entry.document, drive, drive.price, rate))
    if not priced:
        return None
    currencies = [drive.currency for _, drive, *_ in priced]
    currency = max(dict.fromkeys(currencies), key=currencies.count)
    drawn = sorted((row for row in priced if row[1].currency == currency), key=lambda row: -row[3] / row[2])
    columns = (Column("drive", "Drive"), Column("price", "Price", "number", currency, "from drives.toml"),
               Column("price_date", "Price of"),
               column_of(READ_THROUGHPUT),
               Column("mb_s_per_currency", f"{READ_THROUGHPUT.title} per {currency}", "number", f"MB/s per {currency}",
                      "read throughput / price", better="higher"))
    table = Table(f"{READ_THROUGHPUT.title} for the price, the most first", columns, tuple(
        Row({"drive": entry["label"], "price": price, "price_date": str(drive.price_date),
             READ_THROUGHPUT.column: rate, "mb_s_per_currency": rate / price}, entry["label"],
            path=path_of(entry)) for entry, drive, price, rate in drawn))
    notes = [f"{_DIRECTION} Prices are those of drives.toml, on their dates.",
             *_missing(f"Without a price in {currency}", entries, [entry for entry, *_ in drawn])]
    spec = scatter(f"{READ_THROUGHPUT.title} against price, by drive",
                   [Point(entry["label"], "", price, rate) for entry, _, price, rate in drawn],
                   SeriesStyle.of_entries([entry for entry, *_ in drawn], order), Axis("price", currency),
                   Axis(within_sentence(READ_THROUGHPUT.title), READ_THROUGHPUT.unit.symbol))
    return Chart(id_, "Value", table, spec, notes=tuple(notes))


def _missing(what: str, entries: Sequence[Entry], drawn: Sequence[Datum]) -> list[str]:
    labels = {entry_drawn["label"] for entry_drawn in drawn}
    missing = [entry.document["label"] for entry in entries if entry.document["label"] not in labels]
    return [f"{what}: {', '.join(missing)}."] if missing else []


def _energy(entry: Datum) -> _Energy | None:
    """Of all runs of an entry together."""
    joules = watts_ns = 0.0
    covered_ns = wall_ns = data_bytes = 0
    meters = []
    for run in entry["runs"]:
        account = Run.of(run)
        power = account.telemetry.power
        if not power or not power.energy_j or not power.covered_ns:
            continue
        wall_ns += account.wall_ns or power.covered_ns
        joules += power.energy_j
        covered_ns += power.covered_ns
        watts_ns += power.average_w * power.covered_ns
        data_bytes += run["figures"]["all"]["data_bytes"]
        meters.append(", ".join(filter(None, (power.meter, power.rail))))
    if not joules or not data_bytes:
        return None
    return _Energy(entry, joules, watts_ns / covered_ns, wall_ns, None if of_entry(entry) else data_bytes,
                   "; ".join(dict.fromkeys(meters)))


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
    columns_shown = tuple(column for column in columns
                  if any(row.values.get(column.key) is not None or column.key in row.why for row in rows))
    notes = ["The interval holds the factor for certain: each counter is known to one of its steps.",
             "What a drive moves after the run, from its cache for instance, is not in it."]
    without = [entry.document["label"] for entry in entries if not _counts(entry)]
    if without:
        notes.append(f"Without a counter of media writes: {', '.join(without)}.")
    return Chart(id_, WRITE_AMPLIFICATION.title, Table("Writes by the counters of the drives", columns_shown, rows),
                 notes=tuple(notes))


def _counts(entry: Entry) -> WriteCounts | None:
    """Of all runs of an entry together; None if one of them has none."""
    run_counts = [WriteCounts.of(Run.of(run)) for run in entry.document["runs"]]
    present = [counts for counts in run_counts if counts]
    return sum_of(present) if present and len(present) == len(run_counts) else None


def _row(entry: Entry, counts: WriteCounts, drives_file: DrivesFile | None) -> Row:
    document = entry.document
    factor, in_bytes = write_amplification(counts), counts.unit == "B"
    captured_ns = sum(Run.of(run).source.duration_ns or 0 for run in document["runs"])
    written = sum(run["figures"]["write"]["bytes"] for run in document["runs"])
    per_day = written * _DAY_S * 10**9 / captured_ns if captured_ns else None
    drive = drives_file.find(document["label"], document["drive"].get("model") or "") if drives_file else None
    rated_bytes = drive.endurance_tbw * 1e12 if drive and drive.endurance_tbw else None
    reason = why_unknown(counts)
    why = dict.fromkeys(("interval", MEDIA_WRITES_PER_DAY.column), "not known") | {WRITE_AMPLIFICATION.column: reason}
    return Row({"drive": document["label"], WRITE_AMPLIFICATION.column: factor.value if factor else None,
                "interval": f"{digits(factor.low)} to {digits(factor.high)}" if factor else None,
                "host_bytes": counts.host if in_bytes else None, "media_bytes": counts.media if in_bytes else None,
                MEDIA_WRITES_PER_DAY.column: round(factor.value * per_day) if factor and per_day else None,
                "rated_share_per_day": per_day / rated_bytes if per_day and rated_bytes else None},
               document["label"], why if reason else {},
               path=path_of(document))
