"""What a drive does with its power and for its price, where these are known."""

from collections.abc import Sequence
from dataclasses import dataclass

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.scatter import scatter
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Datum, Point
from blkreel.analysis.metrics.definitions.headline import READ_THROUGHPUT
from blkreel.analysis.report.commands import column_of, path_of
from blkreel.analysis.report.document import Entry
from blkreel.analysis.report.drives_file import Drive, DrivesFile
from blkreel.common.printable import within_sentence

_MB_PER_J = "(bytes read + written) / energy from the run's first I/O to its end, idle time included: MB/J is MB/s/W"
_DIRECTION = "Up and to the left is better."


@dataclass(frozen=True)
class _Energy:
    shown: Datum
    joules: float
    watts: float
    data_bytes: int
    meter: str

    @property
    def mb_per_j(self) -> float:
        return self.data_bytes / 1e6 / self.joules


def efficiency(entries: Sequence[Entry], id_: str, order: Sequence[str]) -> Chart | None:
    """entries: of a report.document.Section. None where no run has a measured power."""
    measured = [energy for entry in entries if (energy := _energy(entry.shown))]
    if not measured:
        return None
    columns = (Column("drive", "Drive"),
               Column("efficiency_mb_per_j", "Efficiency", "number", "MB/J", _MB_PER_J, better="higher"),
               Column("average_w", "Power", "number", "W", "energy / time that the meter covered", better="lower"),
               Column("energy_j", "Energy", "number", "J", "of all its runs"), Column("data_bytes", "Data", "size"),
               Column("meter", "Meter"))
    table = Table("Energy over whole runs", columns, tuple(
        Row({"drive": one.shown["label"], "efficiency_mb_per_j": one.mb_per_j, "average_w": one.watts,
             "energy_j": one.joules, "data_bytes": one.data_bytes, "meter": one.meter}, one.shown["label"],
            path=path_of(one.shown)) for one in sorted(measured, key=lambda one: -one.mb_per_j)))
    notes = [f"{_DIRECTION} Under one arrival pattern all drives move the same data, so power decides."]
    notes += _missing("Power not measured", entries, [one.shown for one in measured])
    spec = scatter("Data per energy against average power, by drive",
                   [Point(one.shown["label"], "", one.watts, one.mb_per_j) for one in measured],
                   SeriesStyle.of_entries([one.shown for one in measured], order), Axis("average power", "W"),
                   Axis("efficiency", "MB/J"))
    return Chart(id_, "Efficiency", table, spec, notes=tuple(notes))


def value(entries: Sequence[Entry], id_: str, order: Sequence[str], drives_file: DrivesFile | None) -> Chart | None:
    """Read throughput against price. entries: of a report.document.Section.

    None without prices. A chart has one currency, that of most drives.
    """
    priced: list[tuple[Datum, Drive, float, float]] = []
    for entry in entries:
        drive = drives_file.find(entry.shown["label"], entry.shown["drive"].get("model") or "") if drives_file else None
        rate = entry.shown["headline"][READ_THROUGHPUT.key]["value"]
        if drive and drive.price is not None and rate is not None:
            priced.append((entry.shown, drive, drive.price, rate))
    if not priced:
        return None
    currencies = [drive.currency for _, drive, *_ in priced]
    currency = max(dict.fromkeys(currencies), key=currencies.count)
    drawn = sorted((each for each in priced if each[1].currency == currency), key=lambda each: -each[3] / each[2])
    columns = (Column("drive", "Drive"), Column("price", "Price", "number", currency, "from drives.toml"),
               Column("price_date", "Price of"),
               column_of(READ_THROUGHPUT),
               Column("mb_s_per_currency", f"{READ_THROUGHPUT.title} per {currency}", "number", f"MB/s per {currency}",
                      "read throughput / price", better="higher"))
    table = Table(f"{READ_THROUGHPUT.title} for the price, the most first", columns, tuple(
        Row({"drive": shown["label"], "price": price, "price_date": str(drive.price_date),
             READ_THROUGHPUT.column: rate, "mb_s_per_currency": rate / price}, shown["label"],
            path=path_of(shown)) for shown, drive, price, rate in drawn))
    notes = [f"{_DIRECTION} Prices are those of drives.toml, on their dates.",
             *_missing(f"Without a price in {currency}", entries, [shown for shown, *_ in drawn])]
    spec = scatter(f"{READ_THROUGHPUT.title} against price, by drive",
                   [Point(shown["label"], "", price, rate) for shown, _, price, rate in drawn],
                   SeriesStyle.of_entries([shown for shown, *_ in drawn], order), Axis("price", currency),
                   Axis(within_sentence(READ_THROUGHPUT.title), READ_THROUGHPUT.unit.symbol))
    return Chart(id_, "Value", table, spec, notes=tuple(notes))


def _missing(what: str, entries: Sequence[Entry], shown: Sequence[Datum]) -> list[str]:
    labels = {each["label"] for each in shown}
    missing = [entry.shown["label"] for entry in entries if entry.shown["label"] not in labels]
    return [f"{what}: {', '.join(missing)}."] if missing else []


def _energy(shown: Datum) -> _Energy | None:
    """Of all runs of an entry together."""
    joules = watts_ns = covered_ns = data_bytes = 0
    meters = []
    for run in shown["runs"]:
        power = ((run["run"] or {}).get("telemetry") or {}).get("power")
        if not power or not power.get("energy_j") or not power.get("covered_ns"):
            continue
        joules += power["energy_j"]
        covered_ns += power["covered_ns"]
        watts_ns += power["average_w"] * power["covered_ns"]
        data_bytes += run["figures"]["all"]["data_bytes"]
        meters.append(", ".join(str(power[key]) for key in ("meter", "rail") if power.get(key)))
    if not joules or not data_bytes:
        return None
    return _Energy(shown, joules, watts_ns / covered_ns, data_bytes, "; ".join(dict.fromkeys(meters)))
