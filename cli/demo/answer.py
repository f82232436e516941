"""The last lines of the demo: what the replays found, drive by drive."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from blkreel.analysis.metrics.run_times import why_no_slowdown
from blkreel.common.units import format_ns
from blkreel.replay.run.account import RunAccount, load_time_of
from blkreel.traces.format.reader import open_trace

BACKGROUND_RATE = "110MB/s"
Accounts = Mapping[str, RunAccount]  # by drive


def account_of(run: Path) -> RunAccount:
    """The account of a run. Its baseline is left out where no slowdown is stated."""
    metadata = open_trace(run).metadata
    account: RunAccount = metadata["run"]
    return account if not why_no_slowdown(metadata) else {**account, "baseline": None}


def answer_lines(load: Accounts, application: Accounts, beside: Accounts) -> Iterator[str]:
    """load: of a game load at dependent pace. application: of the captured launches at original pace. beside: of the
    game load beside writes of BACKGROUND_RATE, with a baseline without them."""
    yield f"game load alone, and beside writes of {BACKGROUND_RATE}: " + "; ".join(
        f"{drive} {_slowdown_words(account)}" for drive, account in beside.items())
    yield "game load: " + "; ".join(f"{drive} {_load_words(account)}" for drive, account in load.items())
    yield "application during a download, time with reads outstanding: " + "; ".join(
        f"{drive} {format_ns(account['reads']['wait_ns'])}" if account["reads"] else f"{drive} no reads"
        for drive, account in application.items())
    accounts = [*load.values(), *application.values(), *beside.values()]
    if invalid := sum(account["verdict"]["level"] == "invalid" for account in accounts):
        yield f"{invalid} of {len(accounts)} runs are invalid: do not compare their figures"


def _load_words(account: RunAccount) -> str:
    if account["own_wall_ns"] is None:
        return "unknown"
    load_ns, zero_latency = account["own_wall_ns"], account["zero_latency"]
    added = f" ({format_ns(load_ns - zero_latency['load_time_ns'])} added by the drive)" if zero_latency else ""
    return f"{format_ns(load_ns)}{added}"


def _slowdown_words(account: RunAccount) -> str:
    baseline = account["baseline"]
    slowdown = baseline["slowdown"]["load_time"] if baseline else None
    if baseline is None or slowdown is None:
        return "not measured (a run or its baseline is invalid)"
    return (f"{format_ns(baseline['load_time_ns'])} alone, {format_ns(load_time_of(account))} beside "
            f"({(slowdown - 1) * 100:+.0f} %)")
