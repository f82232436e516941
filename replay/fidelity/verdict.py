"""Whether a run may be published, and the reasons against it (docs/method.md, "Verdict on a run").

Depends only on the account of a run, the metadata key `run`, so a run can be judged again from its file.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from blkreel.common import emulated
from blkreel.common.units import counted, digits, format_bytes, format_change, format_ns, format_share
from blkreel.common.verdict import (
    ASLEEP_LIMIT,
    BACKGROUND_LIMIT,
    BY_CLOCK_LIMIT,
    READ_AHEAD_LIMIT,
    UNSEEN_LIMIT,
    Level,
    Reason,
    Verdict,
    judged,
    reason,
)
from blkreel.replay.drive.write_support import NO_COMMAND, NOT_PASSED
from blkreel.replay.simulated.fitted import limit_of_depth, limit_of_fit, many_writes
from blkreel.replay.telemetry.sensors.host_counters import STEP_NS
from blkreel.traces.format.metadata_types import COARSE_CLOCK_NS, HostAccount, PcieLink, Run
from blkreel.traces.format.schema import CHECKS, ZONE_MANAGEMENT

from . import health
from .certificate import main_cause, times
from .host_effect import EffectLimits

# Mean share of a CPU's time that a hypervisor took. A drive in software suffers from it too.
STEAL_QUALIFIED_SHARE = 0.02
STEAL_INVALID_SHARE = 0.05
# Run over capture, without removed idle time, from which on the drive counts as slower than the captured one.
SLOWER_DRIVE = 1.02
# Metrics that qualify a run beside its headline metrics.
ALSO_JUDGED = ("read_wait", "read_p50", "read_p99", "read_service_time", "write_p50", "write_p99",
               "write_response_p99")
# Withheld where the load time is of a part, or known to be wrong by more than an effect of the host may be.
_OF_LOAD_TIME = ("load_time", "added_by_drive", "compute_share", "largest_speedup")


def judge(account: Mapping[str, Any]) -> Verdict:
    run = Run.of({"run": account})
    power_reasons, notes = health.power(run.telemetry, run.wall_ns or 0)
    return judged([*_invalid(run), *_host(run), *_qualified(run), *power_reasons], notes=notes,
                  withheld=[*_of_host(run), *withheld_of_load_time(run)])


def _of_host(run: Run) -> Iterator[str]:
    return (key for key, effect in run.host_effect.metrics.items() if effect["level"] == "withheld")


def withheld_of_load_time(run: Run) -> tuple[str, ...]:
    """Keys of the metrics that a part of a plan does not have, or that a reason of of_dependencies() forbids to use."""
    limit = run.host_effect.limits.get("withheld", EffectLimits.withheld)
    return _OF_LOAD_TIME if run.partial or _uncomputed_share(run) > limit else ()


def _invalid(run: Run) -> Iterator[Reason]:
    if run.partial:
        yield reason("partial_run", "invalid", f"partial run: {run.partial}")
    if run.drive.get("kind") == "nil" and not run.simulated:
        yield reason("no_drive", "invalid", "no drive: the figures are those of this machine and blkreel")
    if run.error_ops:
        first = f", the first: {run.first_error}" if run.first_error else ""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in run.errors.items())
        yield reason("io_errors", "invalid",
                     f"{counted(run.error_ops, 'I/O')} failed{f' ({kinds})' if kinds else ''}{first}",
                     "error_ops", run.error_ops, 0)
    planned_ops = run.planned_ops or 0
    missing = planned_ops - (run.completed_ops or 0) - sum(run.dropped.values())
    if missing > 0:
        yield reason("missing_ios", "invalid", f"{missing:,} of {planned_ops:,} planned I/Os missing", None, missing, 0)
    elif not run.dropped and not run.as_planned:
        yield reason("plan_differs", "invalid", "issued I/Os differ from the plan")
    for name, count in run.dropped.items():
        if name in ZONE_MANAGEMENT or _check_left_out(name, run):
            continue  # a drive without zones needs no zone management, and a check that is left out qualifies the run
        yield reason("unsupported_ios", "invalid",
                     f"{counted(count, 'I/O')} not issued, because this drive does not support them: {name}", None,
                     count, 0)
    if run.unwritten_bytes:
        remedy = ("they are behind the capacity of their zones" if run.prefill else
                  "replay without --no-prefill")
        yield reason("unwritten_reads", "invalid",
                     f"{format_bytes(run.unwritten_bytes)} read that were never written, which a drive answers "
                     f"without its flash: {remedy}", None, run.unwritten_bytes, 0)
    if run.foreign_ios:
        yield reason("external_io", "invalid", f"{run.foreign_ios:,} external I/Os on the drive", None,
                     run.foreign_ios, 0)
    for name, action in {use["name"]: use["action"] for use in run.arrays if use["action"]}.items():
        yield reason("array_copies", "invalid", f"{name} copied data between its drives ({action}): wait until it is "
                     f"done ({'mdadm --wait' if name.startswith('md') else 'dmsetup status'} /dev/{name})")
    if run.page_cache:
        yield reason("page_cache", "invalid",
                     "I/O through the page cache: attach the image with losetup --direct-io=on")
    links = {"": run.environment.link, **{drive["name"]: drive.get("link") for drive in run.drives[1:]}}
    for name, link in links.items():
        yield from _slow_link(name, link)
    yield from health.invalid(run.telemetry, links)


def _host(run: Run) -> Iterator[Reason]:
    """Delays of this machine, as far as they change a metric."""
    host = run.certificate.host or HostAccount(preemptions=0)
    if host.suspended_ns:
        yield reason("machine_suspended", "invalid", f"machine suspended for {format_ns(host.suspended_ns)}", None,
                     host.suspended_ns, 0)
    yield from _effects(run)
    # Accounts of earlier versions do not have the period of the counters.
    counted_ns = host.counted_ns or run.wall_ns or 0
    cpu_ns = counted_ns * (run.environment.cpu_count or 1)
    is_virtual = (run.engine.get("features") or {}).get("clock") == "virtual"
    stolen = (host.steal_ns or 0) / cpu_ns if cpu_ns and not is_virtual else 0.0
    for level, limit in (("invalid", STEAL_INVALID_SHARE), ("qualified", STEAL_QUALIFIED_SHARE)):
        # Each CPU counts in steps: of a shorter run, one step would exceed the limit.
        if stolen > limit and counted_ns * limit >= STEP_NS:
            yield reason("cpu_steal", cast(Level, level),
                         f"CPU stolen by the hypervisor {stolen * 100:.1f} % of the run (limit {_share(limit)})", None,
                         stolen, limit)
            break
    if host.throttled:
        yield reason("cpu_throttled", "qualified",
                     f"thermal throttling of the processors: {times(host.throttled)}", None, host.throttled, 0)


def _effects(run: Run) -> Iterator[Reason]:
    limits, effects = run.host_effect.limits, run.host_effect.metrics
    if not effects:
        return
    accepted, withheld = _share(limits["accepted"]), _share(limits["withheld"])
    host = run.certificate.host
    cause = f": {main_cause(host.causes)}" if host and host.causes else ""
    headline = run.host_effect.headline or list(effects)
    if all(effects[key]["level"] == "withheld" for key in headline):
        least = min(headline, key=lambda key: abs(effects[key]["effect"]))
        yield reason("all_metrics_withheld", "invalid", "effect of the host on every headline metric at least "
                     f"{format_share(abs(effects[least]['effect']))} (limit {withheld}){cause}", least,
                     effects[least]["effect"], limits["withheld"])
    for key in dict.fromkeys([*headline, *(key for key in ALSO_JUDGED if key in effects)]):
        effect, title = effects[key], key.replace("_", " ")
        if effect["level"] == "withheld":
            yield reason("metric_withheld", "qualified",
                         f"{title} withheld: effect of the host {format_change(effect['effect'])} "
                         f"(limit {withheld}){cause}", key, effect["effect"], limits["withheld"])
        elif effect["level"] == "qualified":
            yield reason("host_effect", "qualified",
                         f"effect of the host on {title} {format_change(effect['effect'])} "
                         f"(limit {accepted}){cause}", key, effect["effect"], limits["accepted"])


def _share(share: float) -> str:
    return f"{share * 100:g} %"


def _slow_link(name: str, link: PcieLink | None) -> Iterator[Reason]:
    if not link:
        return
    for now, best, unit in ((link.get("speed_gts"), link.get("best_speed_gts"), "GT/s"),
                            (link.get("width"), link.get("best_width"), "lanes")):
        if now and best and now < best:
            yield reason("slow_link", "invalid",
                         f"{name or 'drive'} link at {now:g} {unit}; drive and slot support {best:g} {unit}", None,
                         now, best)


def _qualified(run: Run) -> Iterator[Reason]:
    idle, source = run.idle, run.source
    if idle.removed_ns:
        limit = f" above {format_ns(idle.cap_ns)}" if idle.cap_ns else ""
        yield reason("idle_removed", "qualified", f"{format_ns(idle.removed_ns)} of idle time{limit} removed", None,
                     idle.removed_ns, 0)
    for background in run.background:
        share = background.reached_share
        reached_bytes_s = background.reached_bytes_s or 0
        if share is not None and share < BACKGROUND_LIMIT:
            due_bytes_s = reached_bytes_s / share if share else background.asked_bytes_s
            yield reason("background_slow", "qualified",
                         f"background {background.spec} reached {_share(round(share, 3))} of its rate, "
                         f"{digits(reached_bytes_s / 1e6)} of {digits(due_bytes_s / 1e6)} MB/s that were due (limit "
                         f"{_share(BACKGROUND_LIMIT)})", None, share, BACKGROUND_LIMIT)
        elif share is None and not reached_bytes_s and not background.outstanding_share and not run.partial:
            yield reason("background_slow", "qualified", f"background {background.spec} had nothing due and nothing in "
                         "flight while the trace was replayed", None, 0, BACKGROUND_LIMIT)
    yield from _not_fitted(run)
    yield from _pace(run)
    yield from of_dependencies(run)
    if run.hazards:
        yield reason("hazards", "qualified", f"{counted(run.hazards, 'I/O')} in flight together with others on the "
                     "same blocks, unlike in the trace", None, run.hazards, 0)
    lost = source.lost["total"] if source.lost else None
    if lost:
        yield reason("lost_events", "qualified", f"{counted(lost, 'event')} lost by the capture", None, lost, 0)
    for text in source.missing_ios or ():
        yield reason("incomplete_capture", "qualified", f"the capture is not complete: {text}")
    if commands := source.commands_unseen:
        yield reason("unseen_commands", "qualified", f"{commands:,} commands that programs passed to the drive are not "
                     "in the trace", None, commands, 0)
    step_ns = source.times_step_ns
    if step_ns and run.pace.name not in ("depth", "asap"):
        yield reason("coarse_times", "qualified", "all submit times of the trace are multiples of "
                     f"{format_ns(step_ns)}, but its import states a finer clock: gaps between I/Os may be wrong by as "
                     "much", None, step_ns, COARSE_CLOCK_NS)
    unseen, replayed = source.unfinished or 0, source.ios or source.rows or 0
    if "latency" in (source.source_lacks or ()):
        yield reason("unseen_completions", "qualified",
                     "the source of the trace records no completions: which I/Os were in flight together is unknown")
    elif unseen > UNSEEN_LIMIT * replayed:
        yield reason("unseen_completions", "qualified",
                     f"{_share(round(unseen / replayed, 4))} of the trace's I/Os have no completion (limit "
                     f"{_share(UNSEEN_LIMIT)})", None, unseen / replayed, UNSEEN_LIMIT)
    for name in ZONE_MANAGEMENT:
        if count := run.dropped.get(name):
            yield reason("altered_ios", "qualified",
                         f"{counted(count, 'I/O')} omitted, because this drive has no zones: {name}", None, count, 0)
    for name in CHECKS:
        if (count := run.dropped.get(name)) and (why := _check_left_out(name, run)):
            yield reason("altered_ios", "qualified", f"{counted(count, 'I/O')} omitted, because {why}: {name}", None,
                         count, 0)
    if run.compares_unequal:
        yield reason("compared_data", "qualified", f"{run.compares_unequal:,} of {run.compares:,} compares found other "
                     "data than before the run", None, run.compares_unequal, 0)
    for name, count in run.altered.items():
        if count:
            yield reason("altered_ios", "qualified", f"{counted(count, 'I/O')} altered: {name}", None, count, 0)
    if run.foreign_ios is None and not run.simulated:
        why = ("the run was not ended in order" if run.partial and run.drive.get("kind") != "file" else
               "the kernel has no count for this kind of target, or its iostats are switched off")
        yield reason("external_io_unknown", "qualified", f"external I/O not counted: {why}")
    for name, missing in {use["name"]: use["missing_drives"] for use in run.arrays if use["missing_drives"]}.items():
        yield reason("array_incomplete", "qualified", f"{name} lacked {counted(missing, 'drive')}", None, missing, 0)
    yield from health.qualified(run.telemetry)
    yield from emulated.reasons(run.emulated)


def _not_fitted(run: Run) -> Iterator[Reason]:
    fitted = run.fitted
    if fitted is None or not fitted["read_bytes"]:
        return
    if limit := limit_of_depth(fitted):
        yield reason("depth_not_fitted", "qualified", limit)
    has_writes = run.background or many_writes(fitted.get("own_reads", 0), fitted.get("own_writes", 0))
    if has_writes and (limit := limit_of_fit(fitted, run.written_bytes or 0)):
        yield reason("slowdown_not_fitted", "qualified", limit, "slowdown_by_writes" if run.background else None)


def _check_left_out(name: str, run: Run) -> str | None:
    """Why a real drive did not get a check, if that does not invalidate the run."""
    if name not in CHECKS or (run.passthrough and name != "compare"):
        return None
    return NO_COMMAND if run.passthrough else NOT_PASSED


def _pace(run: Run) -> Iterator[Reason]:
    pace = run.pace
    if pace.factor:
        yield reason("times_scaled", "qualified", f"times divided by {pace.factor:g}", None, pace.factor, 1)
    if compute := pace.compute:
        factor = compute if isinstance(compute, int | float) else None
        changed = "left out" if factor is None else f"divided by {factor:g}"
        yield reason("compute_scaled", "qualified", f"computing time {changed}; waits for timers, frames or the "
                     "network count as computing", None, factor, 1)
    for stream, stream_pace in pace.streams.items():
        if stream_pace.factor:
            yield reason("times_scaled", "qualified", f"times of stream {stream} divided by {stream_pace.factor:g}",
                         None, stream_pace.factor, 1)
    if pace.dependencies == "inferred":
        share = pace.dependencies_inferred
        of_ios = "" if share is None else f" for {_share(round(share, 3))} of the I/Os"
        yield reason("dependencies_inferred", "qualified",
                     f"dependencies inferred from times{of_ios}, because the trace has none", None, share)


def of_dependencies(run: Run) -> Iterator[Reason]:
    """What the trace does not tell a replay at dependent pace about a drive of another speed."""
    yield from _read_ahead(run)
    yield from _mapped(run)
    yield from _asleep(run)
    yield from _by_clock(run)
    yield from _computing(run)
    if run.source.uses_lost:
        yield reason("lost_events", "qualified", f"{run.source.uses_lost:,} first uses of pages lost by the capture",
                     None, run.source.uses_lost, 0)


def _read_ahead(run: Run) -> Iterator[Reason]:
    """Read-ahead of another length than here, and read-ahead for which the load time is a lower bound."""
    read_ahead = run.pace.read_ahead
    ios_of_load = read_ahead.ios
    if not ios_of_load:
        return
    devices, number = run.source.devices or [], run.source.device or 0
    captured_bytes = devices[number].get("read_ahead_bytes") if number < len(devices) else None
    here_bytes = run.drive.get("read_ahead_bytes")
    share = (read_ahead.read_ahead_ios or 0) / ios_of_load
    if captured_bytes and here_bytes and captured_bytes != here_bytes and share > READ_AHEAD_LIMIT:
        yield reason("read_ahead_differs", "qualified",
                     f"captured with {captured_bytes >> 10:,} KiB of read-ahead, and this drive has "
                     f"{here_bytes >> 10:,} KiB: a program reads other windows here; set read_ahead_kb of one drive as "
                     "of the other, and capture again", None, share, READ_AHEAD_LIMIT)
    unknown, in_time = read_ahead.blocked_unknown_ios or 0, read_ahead.in_time_ios or 0
    if unknown > READ_AHEAD_LIMIT * ios_of_load:
        ios, of = unknown, "by threads without a blocked time"
        why = "computing meanwhile is not replayed"
    elif in_time > READ_AHEAD_LIMIT * ios_of_load and (run.wall_ns or 0) > SLOWER_DRIVE * _captured_ns(run) > 0:
        ios, of = in_time, "that was complete in time on the captured drive"
        why = "on this slower drive nothing waits for it"
    else:
        return
    share = ios / ios_of_load
    yield reason("load_time_lower_bound", "qualified",
                 f"load time is a lower bound: {_share(round(share, 3))} of the I/Os are read-ahead {of} (limit "
                 f"{_share(READ_AHEAD_LIMIT)}): {why}", "read_ahead_share", share, READ_AHEAD_LIMIT)


def _mapped(run: Run) -> Iterator[Reason]:
    """Uses of mapped files that the capture saw too early: a fault maps pages that the thread needs only later."""
    ios, mapped = run.pace.read_ahead.ios or 0, run.pace.read_ahead.used_by_mapping_ios or 0
    if mapped > READ_AHEAD_LIMIT * ios and (run.wall_ns or 0) > SLOWER_DRIVE * _captured_ns(run) > 0:
        share = min(1, mapped / ios)
        yield reason("used_by_mapping", "qualified",
                     f"load time may be too long: {_share(round(share, 3))} of the I/Os (limit "
                     f"{_share(READ_AHEAD_LIMIT)}) are reads of mapped files whose use the capture saw only by "
                     "their mapping; capture on Linux 6.12 or later where BPF programs can be attached to functions",
                     None, share, READ_AHEAD_LIMIT)


def _captured_ns(run: Run) -> int:
    return (run.source.duration_ns or 0) - run.idle.removed_ns


def _asleep(run: Run) -> Iterator[Reason]:
    """Threads that mostly wait for others, whose work or order the trace does not have: on another drive they wait
    otherwise."""
    captured_ns, wall_ns = _captured_ns(run), run.wall_ns or 0
    if captured_ns <= 0 or wall_ns <= 0 or captured_ns / SLOWER_DRIVE <= wall_ns <= captured_ns * SLOWER_DRIVE:
        return
    faster = max(1.0, captured_ns / wall_ns)  # their length is that of the capture, of a shorter time
    for code, captured_share, did, why in (
            ("threads_asleep", run.pace.asleep_share, "slept",
             " for other threads, locks or timers, which keeps its length here"),
            ("processors_busy", run.pace.waiting_share, "waited",
             " for a processor: on another drive they compute in another order")):
        share = min(1.0, (captured_share or 0) * faster)
        if share > ASLEEP_LIMIT:
            yield reason(code, "qualified",
                         f"depth, latency and load time uncertain: threads {did} {_share(round(share, 3))} of the time "
                         f"between their I/Os (limit {_share(ASLEEP_LIMIT)}){why}", None, share, ASLEEP_LIMIT)


def _by_clock(run: Run) -> Iterator[Reason]:
    """I/Os of a thread that wakes by the clock, behind the end of a program that was quicker than on the captured
    drive."""
    ios, late_ns, load_time_ns = run.pace.by_clock_ios or 0, run.pace.by_clock_ns or 0, run.load_time_ns or 0
    if late_ns > BY_CLOCK_LIMIT * load_time_ns > 0:
        yield reason("ended_by_clock", "qualified",
                     f"load time without the last {counted(ios, 'I/O')}, {format_ns(late_ns)} after all others because "
                     f"a thread slept by the clock; in the trace others come after. With them it is "
                     f"{format_ns(load_time_ns + late_ns)}", None, late_ns / load_time_ns, BY_CLOCK_LIMIT)


def _computing(run: Run) -> Iterator[Reason]:
    """Threads that compute and do no I/O, which may be what the program waits for on a faster drive."""
    if _uncomputed_share(run) > SLOWER_DRIVE - 1:
        computed_ns, wall_ns = _computed_ns(run), run.wall_ns or 0
        yield reason("computing_unknown", "qualified",
                     "load time uncertain: threads of the captured command computed for at least "
                     f"{format_ns(computed_ns)} between its first and last I/O, and the replay took "
                     f"{format_ns(wall_ns)}: what threads compute that do no I/O is not replayed", None, wall_ns,
                     computed_ns)


def _computed_ns(run: Run) -> int:
    return (run.source.least_computed_ns or 0) - run.idle.removed_ns


def _uncomputed_share(run: Run) -> float:
    """By how much longer than the run the threads of the command computed, which is what it takes at least."""
    return _computed_ns(run) / run.wall_ns - 1 if run.wall_ns and not run.pace.compute else 0.0
