"""Replay accuracy (the metadata key `certificate` of a run) as rows of text."""

from collections.abc import Iterator

from blkreel.common import units

from .verdict import Document

_Rows = Iterator[tuple[str, str, str]]


def certificate_rows(run: Document | None) -> list[tuple[str, str, str]]:
    """(what, as planned or captured, as replayed); empty for a run without a certificate."""
    measured = (run or {}).get("certificate") or {}
    return [*_arrivals(measured.get("arrivals")), *_in_flight(measured.get("in_flight")),
            *_counts(run, measured.get("host"))]


def held_up_rows(run: Document | None) -> list[Document]:
    """Causes of late issue, most late I/Os first: words, count, total_ns, longest_ns, late_ops."""
    causes = (((run or {}).get("certificate") or {}).get("host") or {}).get("causes") or {}
    rows = [{**sum_of, "words": sum_of.get("words") or name} for name, sum_of in causes.items()]
    return sorted(rows, key=lambda row: (row["late_ops"], row["total_ns"]), reverse=True)


def _arrivals(arrivals: Document | None) -> _Rows:
    if not arrivals:
        return
    planned, issued = arrivals["planned"], arrivals["issued"]
    for name, words in (("mean_ns", "mean"), ("p50_ns", "median"), ("p99_ns", "p99")):
        yield (f"Gap between submissions, {words}", units.duration(planned[name]), units.duration(issued[name]))
    yield "Greatest difference of the two distributions of gaps", "", f"{arrivals['ks']:.2%}"
    yield ("A gap changed by: median, p99, most", "",
           ", ".join(units.duration(arrivals["changed"][name]) for name in ("p50_ns", "p99_ns", "max_ns")))


def _in_flight(in_flight: Document | None) -> _Rows:
    if not in_flight:
        return
    captured, replayed = in_flight["captured"] or {}, in_flight["replayed"] or {}
    for name, words in (("mean", "mean"), ("p50", "median"), ("p99", "p99"), ("max", "most")):
        before, after = (units.digits(side[name]) if side else units.MISSING for side in (captured, replayed))
        yield f"In flight while busy, {words}", before, after
    if in_flight["ks"] is not None:
        yield "Greatest difference of the two distributions in flight", "", f"{in_flight['ks']:.2%}"


def _counts(run: Document | None, host: Document | None) -> _Rows:
    if not run or not host:
        return
    yield "Forced off the processor", "", f"{host['preemptions']:,} times"
    if host.get("waited_ns") is not None:
        yield "Waited for a processor", "", units.duration(host["waited_ns"])
    yield "Drift at the end", "", units.duration(run["drift_ns"])
    yield "Plan too late, records not taken away", "", f"{run['underruns']:,}, {run['record_stalls']:,} times"
    for name, words in (("altered", "altered"), ("dropped", "not issued")):
        yield f"I/Os {words}", "", f"{sum((run.get(name) or {}).values()):,}"
