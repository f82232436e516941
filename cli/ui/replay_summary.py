"""What `blkreel replay` prints about a plan and a run, and `blkreel report` about a run."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from blkreel.analysis.report.beside import beside_sentence, without_slowdown
from blkreel.analysis.report.columns import exposure_words, headline_of
from blkreel.common.console import Detail
from blkreel.common.files.json_file import print_json
from blkreel.common.files.typed_document import record
from blkreel.common.printable import printable
from blkreel.common.text_table import shortened, wrapped
from blkreel.common.units import counted, digits, format_bytes, format_change, format_count, format_ns, format_share
from blkreel.replay.background.plan import PlanBeside
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import Target
from blkreel.replay.fidelity.certificate import certificate_lines
from blkreel.replay.plan.plan import Plan, PlannedCounts
from blkreel.replay.prepare.resume_point import state_words
from blkreel.traces.format.condition import compute_words
from blkreel.traces.format.metadata_types import Idle, Pace, Run, Telemetry

_VERDICT_LINES = 3
_WRAP_LOSS = 40  # of a wrapped text, at the ends of its lines
_DEPENDENCY_KINDS = {
    "waited": "wait for the completion of other I/Os", "followed": "follow the previous I/O of their thread",
    "caused": "follow the I/O that started their thread", "absolute": "are issued at their captured time",
    "reanchored": "of these follow another I/O, as theirs is not in the plan",
    "truncated": "of these wait for the last four of more completions",
    "windowed": "of these wait for read-ahead that their thread had used",
    "woken": "of these wait until another thread wakes theirs",
    "used": "first uses of pages, which wait for their read"}


def pace_words(pace: Pace, idle: Idle) -> str:
    """`dependent pace, idle capped at 25 ms`, `original pace, stream 1 at depth 4`."""
    name, _, compute = _pace_name(pace).partition(", ")
    parts = [f"{name} pace", *([compute] if compute else [])]
    if idle.cap_ns is not None:
        parts.append(f"idle capped at {format_ns(idle.cap_ns)}" if idle.name == "cap" else "idle removed")
    parts += [f"stream {stream} at {_pace_name(own)}" for stream, own in pace.streams.items()]
    return ", ".join(parts)


def plan_pace_words(plan: Plan) -> str:
    return pace_words(record(Pace, plan.pace_account()), Idle(name=plan.idle.name, cap_ns=plan.idle.cap_ns))


def _pace_name(pace: Pace) -> str:
    words = {"depth": f"depth {pace.depth}", "scaled": f"x{pace.factor or 0:g}"}.get(pace.name, str(pace.name))
    return words + compute_words(pace.compute)


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print a dry run. A dependent plan is generated once and discarded, to count its dependencies."""
    counts = PlannedCounts()
    if any(pace.dependent for pace in plan.paces):
        for _ in plan.foreground.batches(counts):
            pass
    drives = [_drive_document(drive) for drive in plan.drives]
    pace = plan.pace_account(counts)
    if as_json:
        print_json({
            "version": 1, "dry_run": True, **drives[0], "drives": drives if len(drives) > 1 else None,
            "pace": pace, "plan_ns": plan.duration_ns, "removed_idle_ns": plan.survey.removed_ns})
        return
    targets = " and ".join(str(target.path) for target in plan.targets)
    print(f"would replay {counted(plan.total_ios, 'I/O')} on {targets}, {plan_pace_words(plan)}; "
          "dry run, nothing written")
    for drive in drives:
        if len(drives) > 1:
            print(f"  {drive['target']}, for device {drive['device']} of the trace:")
        _show_drive(drive)
    if pace["dependencies"]:
        print(f"  dependencies {pace['dependencies']}:")
        for kind, text in _DEPENDENCY_KINDS.items():
            print(f"    {format_count(pace['anchored'][kind]):>12} {text}")
    for background in plan.backgrounds if isinstance(plan, PlanBeside) else ():
        print(f"  background   {background.words()}, {format_bytes(background.part.size_bytes)} from "
              f"{format_bytes(background.part.start_bytes)} on")
    threads = pace["threads"]
    if threads["count"] > 1 or threads["note"]:
        print(f"  issued by    {_describe_threads(threads)}")
    if plan.survey.removed_ns:
        print(f"  idle removed {format_ns(plan.survey.removed_ns)}")
    print(f"  duration     {'set by the drive' if plan.duration_ns is None else format_ns(plan.duration_ns)}")


def state_lines(targets: Sequence[Target]) -> list[str]:
    """`state of /dev/nvme1n1: client, prepared 2 h ago, 3.1 GB written since`, for each drive."""
    return [f"state of {target.path}: {state_words(target)}" for target in targets if not target.is_nil]


def _describe_threads(threads: Mapping[str, Any]) -> str:
    """`2 threads, by place`, `1 thread: all threads of the trace waited for each other`."""
    text = f"{threads['count']} thread" + ("s" if threads["count"] > 1 else "")
    text += f", by {threads['by']}" if threads["by"] else ""
    return f"{text}: {threads['note']}" if threads["note"] else text


def _drive_document(drive: Any) -> dict[str, Any]:
    survey, copies = drive.survey, drive.mapping.copies
    return {"target": str(drive.target.path), "device": drive.device,
            "ops": {name: ios * copies for name, ios in survey.ios.items()},
            "bytes": {name: count * copies for name, count in survey.bytes.items()},
            "touched": {"extents": len(survey.touched) * copies, "bytes": survey.touched.bytes * copies},
            "map": drive.mapping.name,
            "prefill": {"extents": len(drive.prefill), "bytes": drive.prefill.bytes},
            "changed_by_trace_bytes": drive.changed_bytes}


def _show_drive(drive: Mapping[str, Any]) -> None:
    for name, count in drive["ops"].items():
        print(f"  {name:<12} {format_count(count):>12}   {format_bytes(drive['bytes'][name]):>8}")
    for name, extents in (("footprint", drive["touched"]), ("prefill", drive["prefill"])):
        mapping = f", map {drive['map']}" if name == "footprint" else ""
        print(f"  {name:<12} {format_bytes(extents['bytes'])} in {counted(extents['extents'], 'extent')}{mapping}")
    print(f"  overwrites   {format_bytes(drive['changed_by_trace_bytes'])}")


def summary_lines(document: Mapping[str, Any], detail: Detail, width: int) -> list[str]:
    """A run or trace from its report document: size, leading metrics, exposure to writes, lateness, verdict. Of metrics
    and lateness as much as fits one line each."""
    entry = document["entry"]
    run, total = entry["runs"][0], entry["figures"]["all"]
    stored, account = run["run"], Run.of(run)
    label = entry["label"]
    if stored and (pace := pace_words(account.pace, account.idle)) not in label:
        label += f", {pace}"
    done = format_count(total["ops"])
    if account.planned_ops is not None and account.completed_ops != account.planned_ops:
        done += f" of {format_count(account.planned_ops)}"
    size = (f"{done} {'I/O' if done == '1' else 'I/Os'}, {format_bytes(total['data_bytes'])}, "
            f"{format_ns(account.wall_ns or total['makespan_ns'] or 0)}, {counted(total['error_ops'], 'error')}")
    if total["unseen_ops"]:
        size += f", {counted(total['unseen_ops'], 'I/O')} without completion"
    if not total["ops"] and not stored:
        size = f"{counted(total['unseen_ops'], 'I/O')}, none with its completion"
    lines = wrapped(beside_sentence(entry), width) + wrapped(f"{printable(run['path'])}: {label}, {size}", width)
    lines += _in_one_line("  ", metric_words(entry), width)
    lines += _in_one_line("  ", [words] if (words := exposure_words(entry)) else [], width)
    lines += _in_one_line("  ", [limit] if (limit := entry.get("provider_limit")) else [], width)
    for line in _background_lines(account):
        lines += wrapped(f"  {line}", width)
    lines += _in_one_line("  ", _lateness_words(account, entry), width)
    if detail.verbose and stored:
        lines += [f"  {line}" for line in _cause_lines(stored, account)]
    return lines + verdict_lines(entry["verdict"], detail, width)


def repetition_lines(document: Mapping[str, Any], detail: Detail, width: int) -> list[str]:
    """A repetition in two lines, or with its causes and reasons."""
    if detail.verbose or detail.why:
        return summary_lines(document, detail, width)
    entry = document["entry"]
    words = [beside] if (beside := beside_sentence(entry)) else metric_words(entry)
    return [*_in_one_line(f"{entry['runs'][0]['path']}: ", words, width),
            *wrapped(f"  {without_slowdown(entry)}", width),
            *(f"  {line}" for line in verdict_lines(entry["verdict"], detail, width - 2))]


def verdict_lines(verdict: Mapping[str, Any], detail: Detail, width: int) -> list[str]:
    """The level with its first reason, or all reasons, each on lines of its own."""
    reasons = verdict["reasons"]
    if detail.why or not reasons:
        return [verdict["level"], *(line for reason in reasons
                                    for line in wrapped(f"  {reason['level']}: {reason['text']}", width))]
    more = len(reasons) - 1
    count = f" (and {more} more {'reason' if more == 1 else 'reasons'}: --why)" if more else ""
    text = shortened(f"{verdict['level']}: {reasons[0]['text']}", _VERDICT_LINES * width - len(count) - _WRAP_LOSS)
    return wrapped(text + count, width)


def metric_words(entry: Mapping[str, Any]) -> list[str]:
    """`read wait 9.8 s`, `read p99 390 µs`: the headline metrics of a run that have a value."""
    parts = []
    for metric in headline_of([dict(entry)]):
        if (value := entry["headline"][metric.key]["value"]) is not None:
            parts.append(metric.named(metric.noun, value))
    return parts


def _background_lines(run: Run) -> Iterator[str]:
    """What each background of a run did while the workload ran."""
    for background in run.background:
        if background.reached_bytes_s is None:
            continue
        reached, asked = (digits(rate / 1e6) for rate in (background.reached_bytes_s, background.asked_bytes_s))
        p99_ns, outstanding = background.latency_p99_ns, background.outstanding_share
        yield (f"{background.words}: {reached} of {asked} MB/s"
               + (f", p99 {format_ns(p99_ns)}" if p99_ns is not None else "")
               + (f", outstanding {outstanding * 100:.0f} % of the time" if outstanding is not None else ""))


def _lateness_words(run: Run, entry: Mapping[str, Any]) -> list[str]:
    late = run.lateness
    if not late or not late["max_ns"]:
        return []
    words = [f"issue lateness p50 {format_ns(late['p50_ns'])}", f"p99 {format_ns(late['p99_ns'])}",
             f"max {format_ns(late['max_ns'])}"]
    effects = run.host_effect.metrics
    for metric in headline_of([dict(entry)]):
        if metric.key in effects:
            words.append(f"effect on {metric.noun} {format_change(effects[metric.key]['effect'])}")
            break
    return words + ([f"drive queue full for {counted(full, 'I/O')}"] if (full := late["queue_full_ops"]) else [])


def _in_one_line(start: str, parts: Sequence[str], width: int) -> list[str]:
    """The first parts that fit, joined by commas; no line without parts. A first part that is longer is wrapped."""
    line = start
    for index, part in enumerate(parts):
        longer = f"{line}{', ' if index else ''}{part}"
        if index and len(longer) > width:
            break
        line = longer
    return wrapped(line, width) if parts else []


def _cause_lines(account: Mapping[str, Any], run: Run) -> Iterator[str]:
    """Plan, state, dependencies, threads, replay accuracy with the causes of stalls, and telemetry."""
    if run.plan_ns is not None:
        yield f"planned {format_ns(run.plan_ns)} to the last issue"
    for drive in account.get("drives") or [account]:
        yield from _state_lines(drive["state"], drive.get("path"), account.get("started_at"))
    pace = account["pace"]
    if pace.get("dependencies"):
        anchored = pace["anchored"]
        yield (f"dependencies {pace['dependencies']}: {anchored['waited']:,} waited, "
               f"{anchored['followed'] + anchored['caused']:,} followed, {anchored['absolute']:,} at captured times")
        if run.own_wall_ns is not None:
            yield f"workload I/O took {format_ns(run.own_wall_ns)} from first to last"
        if pace.get("asleep_share"):
            yield (f"sleep of threads: {format_share(pace['asleep_share'])} of the time between their I/Os, kept as "
                   "captured")
        if pace.get("turnaround_ns"):
            yield f"turnaround of the replay {format_ns(pace['turnaround_ns'])}, subtracted from each completion"
    threads = pace.get("threads")
    if threads and (threads["count"] > 1 or threads["note"]):
        yield f"issued by {_describe_threads(threads)}"
    if run.hazards:
        yield f"hazards: {counted(run.hazards, 'I/O')} in flight together to the same blocks, unlike in the trace"
    yield from certificate_lines(run.certificate)
    if line := telemetry_line(run.telemetry):
        yield line


def _state_lines(state: Mapping[str, Any], path: str | None, started_at: str | None) -> Iterator[str]:
    if state["name"] and started_at:
        text = drive_state.words(dict(state), datetime.fromisoformat(started_at), state.get("by_others_bytes"))
        yield f"state at start: {f'{path}, ' if path else ''}{text}"
        yield from (f"  {note}" for note in state["notes"])


def telemetry_line(telemetry: Telemetry) -> str:
    """Temperature and power of a run as one line; "" without a sensor."""
    parts = []
    if temperature := telemetry.temperature_c:
        parts.append(f"drive temperature {temperature.start:.0f} C at start, {temperature.end:.0f} C at end, "
                     f"max {temperature.max:.0f} C")
    if power := telemetry.power:
        gaps = f", {counted(power.gaps, 'gap')}" if power.gaps else ""
        parts.append(f"{power.average_w:.4g} W on average, {power.energy_j:.4g} J in "
                     f"{format_ns(power.covered_ns)} ({power.meter}{gaps})")
    return "; ".join(parts)
