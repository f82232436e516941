"""The figures of one run by class of I/O, as rows of text for the page and for the terminal."""

from . import numbers
from .percentiles import PERCENTILES

CONSISTENCY = {
    "mean_iops": "IOPS, mean of the whole seconds",
    "score": "Consistency: mean / standard deviation",
    "downside_score": "Consistency, dips only: median / downside",
    "first_percentile_over_median": "Slowest 1 % of seconds / median",
    "share_under_half_median": "Share of seconds under half the median",
}


def class_rows(figures: dict) -> list[tuple[str, list[dict]]]:
    """(label, a cell each for reads, writes, other) of the figures of one run."""
    classes = [figures[name] for name in ("read", "write", "other")]

    def row(label, pick, text, note=lambda one: ""):
        return label, [{"value": pick(one), "note": note(one),
                        "text": note(one) or (text(pick(one)) if one["ops"] else numbers.MISSING)} for one in classes]

    def rate(value):
        return numbers.MISSING if value is None else f"{numbers.digits(value)} MB/s"

    rows = [
        row("I/Os", lambda one: one["ops"], lambda value: f"{value:,}"),
        row("Bytes", lambda one: one["bytes"], numbers.size),
        row("Burst throughput", lambda one: one["bursts"]["throughput_mb_s"], rate),
        row("Throughput by busy time", lambda one: one["throughput_by_busy_mb_s"], rate),
        row("Total service time", lambda one: one["service_ns"], numbers.duration),
        row("Busy time", lambda one: one["busy_ns"], numbers.duration),
        row("Makespan", lambda one: one["makespan_ns"], numbers.duration),
        row("Mean busy depth", lambda one: one["mean_busy_depth"], numbers.digits),
        row("Bursts", lambda one: one["bursts"]["count"], lambda value: f"{value:,}"),
        row("… of these strays", lambda one: one["bursts"]["strays"]["count"], lambda value: f"{value:,}"),
        row("Wait: sum of burst makespans", lambda one: one["bursts"]["makespan_ns"], numbers.duration),
    ]
    for kind, title in (("latency", "Latency"), ("response", "Response"), ("queue", "In scheduler")):
        if not any(one[kind]["n"] for one in classes):
            continue
        for name in PERCENTILES:
            rows.append(row(f"{title} {name.replace('_', '.')}", lambda one, k=kind, p=name: one[k][f"{p}_ns"],
                            numbers.duration, lambda one, k=kind, p=name: _too_small(one[k], p)))
        rows.append(row(f"{title} max", lambda one, k=kind: one[k]["max_ns"], numbers.duration))
    for name, title in (("p50", "Half"), ("p90", "90 %")):
        rows.append(row(f"{title} of the waiting was in I/Os up to", lambda one, p=name: one["waiting"][f"{p}_ns"],
                        numbers.duration, lambda one, p=name: _too_small(one["latency"], p)))
    for key, title in CONSISTENCY.items():
        if any(one["consistency"][key] is not None for one in classes):
            rows.append(row(title, lambda one, k=key: one["consistency"][k], numbers.digits))
    for label, key in (("I/Os without completion", "unseen_ops"), ("I/Os failed", "error_ops")):
        if any(one[key] for one in classes):
            rows.append((label, [{"value": one[key], "note": "", "text": f"{one[key]:,}"} for one in classes]))
    return rows


def _too_small(shown, name):
    return f"n too small (n={shown['n']:,})" if shown["n"] and name in shown["too_small"] else ""
