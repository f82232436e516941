"""What a drive gives for its price, where the user has entered prices (drives.toml)."""

from .. import numbers
from .commands import command, path_of
from .model import Column, Exhibit, Row, Table
from .parts import name_of
from .scatter import scatter

_NAME, _KEY = "read_throughput_mb_s", "read.bursts.throughput_mb_s"


def value(entries, id_: str, order: list[str], catalogue) -> Exhibit | None:
    """entries: of an analysis.document.Section. None where none of them has a price. Prices of different currencies
    never stand in one chart: that of most drives is drawn."""
    priced = []
    for entry in entries:
        drive = catalogue.find(entry.shown["label"], entry.shown["drive"].get("model") or "") if catalogue else None
        rate = entry.shown["headline"][_NAME]["value"]
        if drive and drive.price is not None and rate is not None:
            priced.append((entry.shown, drive, rate))
    if not priced:
        return None
    currencies = [drive.currency for _, drive, _ in priced]
    currency = max(dict.fromkeys(currencies), key=currencies.count)
    drawn = sorted((one for one in priced if one[1].currency == currency), key=lambda one: -one[2] / one[1].price)
    rows = [{"entry": shown["label"], "name": name_of(shown), "x": drive.price, "y": rate,
             "text": f"{numbers.digits(rate)} MB/s for {drive.price:,.2f} {currency}"} for shown, drive, rate in drawn]
    columns = (Column("drive", "Drive"), Column("price", "Price", "number", currency, "entered by the user"),
               Column("price_date", "Price of"),
               Column("read_throughput_mb_s", "Read throughput", "rate", better="higher", recompute=command(_KEY)),
               Column("mb_s_per_currency", f"Read throughput per {currency}", "number", f"MB/s per {currency}",
                      "read throughput / price", better="higher"))
    table = Table("Read throughput for the price, the most first", columns, tuple(
        Row({"drive": shown["label"], "price": drive.price, "price_date": drive.price_date.isoformat(),
             "read_throughput_mb_s": rate, "mb_s_per_currency": rate / drive.price}, shown["label"],
            path=path_of(shown)) for shown, drive, rate in drawn))
    notes = ["Up and to the left is better. Prices were entered by who made this page, and hold for their dates."]
    missed = [entry.shown["label"] for entry in entries if not any(entry.shown is shown for shown, *_ in drawn)]
    if missed:
        notes.append(f"Without a price in {currency}: {', '.join(missed)}.")
    spec = scatter("Read throughput against price, by drive", rows, order, ("price", currency),
                   ("read throughput", "MB/s"))
    return Exhibit(id_, "Value", table, spec, notes=tuple(notes))
