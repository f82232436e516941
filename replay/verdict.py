"""Whether a run may be published, and what speaks against it (docs/method.md, "Verdict on a run").

Works on the account of a run, the metadata key `run`, alone: so whoever has the file can judge again.
"""

from collections.abc import Iterator

from blkreel.traces.units import format_bytes, format_ns

from . import health
from .certificate import CAUSES, causes_of, causes_text
from .lateness import DRIFT_LIMIT_NS, HOST_MAX_LIMIT_NS, HOST_P99_LIMIT_NS
from .simulated_spec import MODEL as SIMULATED

LEVELS = ("valid", "qualified", "invalid")

# What may hold a run up whose I/Os have no deadlines: their latencies are too long by it, and no lateness shows it.
DISTURBED_SHARE = 0.01


def judge(run: dict) -> dict:
    """The verdict: its level is the worst of its reasons."""
    reasons = [{"level": "invalid", "text": text} for text in _invalid(run)]
    reasons += [{"level": "qualified", "text": text} for text in _qualified(run)]
    return {"level": reasons[0]["level"] if reasons else "valid", "reasons": reasons}


def _invalid(run) -> Iterator[str]:
    if run["partial"]:
        yield f"the run is partial: {run['partial']}"
    drive = run.get("drive") or {}
    if drive.get("model") == SIMULATED:
        yield "the drive was simulated: the figures are those of its model"
    elif drive.get("kind") == "nil":
        yield "there was no drive: what was measured is this machine and blkreel"
    if run["error_ops"]:
        first = f", the first: {run['first_error']}" if run.get("first_error") else ""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in (run.get("errors") or {}).items())
        yield f"{run['error_ops']:,} I/Os failed{f' ({kinds})' if kinds else ''}{first}"
    missing = run["planned_ops"] - run["completed_ops"] - sum(run["dropped"].values())
    if missing:
        yield f"{missing:,} of {run['planned_ops']:,} planned I/Os are missing"
    elif not run["dropped"] and not run["as_planned"]:
        yield "the I/Os that were issued are not those of the plan"
    for name, count in run["dropped"].items():
        yield f"{count:,} I/Os could not be issued on this drive: {name}"
    if run["unwritten_bytes"]:
        yield (f"{format_bytes(run['unwritten_bytes'])} were read that nothing had written, and a drive answers "
               "such reads without its flash: replay without --no-prefill")
    if run["foreign_ios"]:
        yield f"{run['foreign_ios']:,} I/Os on the drive were not ours"
    if run["page_cache"]:
        yield "I/O went through the page cache: attach the image with losetup --direct-io=on"
    yield from _link(run["environment"].get("link"))
    for drive in (run.get("drives") or [])[1:]:
        yield from _link(drive["link"])
    links = {drive["name"]: drive["link"] for drive in (run.get("drives") or [])[1:]}
    yield from health.invalid(run.get("telemetry"), {"": run["environment"].get("link"), **links})
    yield from _late(run)
    yield from _held_up(run)


def _late(run):
    late, causes = run["lateness"], causes_text(run)
    because = f": {causes}" if causes else ""
    if late:
        if late["host_p99_ns"] > HOST_P99_LIMIT_NS:
            yield (f"this machine issued 1 % of the I/Os more than {format_ns(late['host_p99_ns'])} late "
                   f"(limit {format_ns(HOST_P99_LIMIT_NS)}){because}")
        if late["host_max_ns"] > HOST_MAX_LIMIT_NS:
            yield (f"this machine issued an I/O {format_ns(late['host_max_ns'])} late "
                   f"(limit {format_ns(HOST_MAX_LIMIT_NS)}){because}")
    if run["drift_ns"] > DRIFT_LIMIT_NS:
        yield (f"the replay ended {format_ns(run['drift_ns'])} behind its plan (limit {format_ns(DRIFT_LIMIT_NS)})"
               f"{because}")


def _held_up(run) -> Iterator[str]:
    """What made latencies too long, although no I/O was so late: one that was being issued, or had completed."""
    late = run["lateness"] or {"host_max_ns": 0}
    host = (run.get("certificate") or {}).get("host") or {}
    if host.get("suspended_ns"):
        yield f"the machine was asleep for {format_ns(host['suspended_ns'])}"
    for name, sum_of in causes_of(run).items():
        # A plan that is late, and more I/Os than a machine can issue, delay I/Os and nothing else.
        if (sum_of["longest_ns"] > HOST_MAX_LIMIT_NS and name not in ("plan", "overload")
                and (name == "records" or late["host_max_ns"] <= HOST_MAX_LIMIT_NS)):
            yield (f"the issuing thread was held up for {format_ns(sum_of['longest_ns'])} at a time, and saw "
                   f"completions so much later (limit {format_ns(HOST_MAX_LIMIT_NS)}): {CAUSES.get(name, name)}")


def _disturbed(run) -> Iterator[str]:
    """Short of the limits, but worth a word."""
    host = (run.get("certificate") or {}).get("host") or {}
    total_ns = sum(sum_of["total_ns"] for sum_of in causes_of(run).values())
    if run["wall_ns"] and total_ns > run["wall_ns"] * DISTURBED_SHARE:
        name, most = max(causes_of(run).items(), key=lambda item: item[1]["total_ns"])
        # Before its first I/O, too: of a run of milliseconds that may be more than all of it.
        share = min(1.0, total_ns / run["wall_ns"])
        yield (f"the issuing thread was held up for {share:.1%} of the time, mostly because "
               f"{CAUSES.get(name, name)} ({format_ns(most['total_ns'])})")
    if host.get("throttled"):
        yield f"heat slowed the processors down {host['throttled']:,} times"


def _link(link):
    if not link:
        return
    for name, best, unit in (("speed_gts", "best_speed_gts", " GT/s"), ("width", "best_width", " lanes")):
        if link[name] and link[best] and link[name] < link[best]:
            yield f"the drive's link runs at {link[name]:g}{unit}; drive and slot support {link[best]:g}{unit}"


def _paced(pace) -> Iterator[str]:
    if pace.get("factor"):
        yield f"all times were divided by {pace['factor']:g}"
    for stream, own in (pace.get("streams") or {}).items():
        if own["factor"]:
            yield f"all times of stream {stream} were divided by {own['factor']:g}"
    if pace.get("dependencies") == "inferred":
        yield "what waits for what was inferred from times alone: the trace did not observe it"


def _qualified(run) -> Iterator[str]:
    idle = run["idle"]
    if idle["removed_ns"]:
        cap = f"capped at {format_ns(idle['cap_ns'])}" if idle["cap_ns"] else "removed"
        yield f"idle time {cap}: {format_ns(idle['removed_ns'])} taken out"
    yield from _paced(run.get("pace") or {})
    if run.get("hazards"):
        yield f"{run['hazards']:,} I/Os met others over the same blocks, as they had not in the trace"
    lost = (run["source"].get("lost") or {}).get("total")
    if lost:
        yield f"the capture lost {lost:,} events"
    for name, count in run["altered"].items():
        if count:
            yield f"{count:,} I/Os were altered: {name}"
    if run["underruns"]:
        yield f"the plan came too late {run['underruns']:,} times"
    if run["record_stalls"]:
        yield f"the records were not taken away in time {run['record_stalls']:,} times"
    yield from _disturbed(run)
    if run["foreign_ios"] is None:
        yield "foreign I/O could not be counted on this kind of target"
    yield from health.qualified(run.get("telemetry"), run["wall_ns"])
