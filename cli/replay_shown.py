"""What `blkreel replay` prints of a plan and of a run."""

import json
from datetime import datetime

from blkreel.cli.telemetry_shown import telemetry_line
from blkreel.replay import drive_state
from blkreel.replay.certificate import certificate_lines
from blkreel.replay.preparation_progress import state_words
from blkreel.traces.units import format_bytes, format_count, format_ns

_ANCHORED = {"waited": "wait for another's completion", "followed": "follow their thread's last one",
             "caused": "follow what caused their thread", "absolute": "come at their own time",
             "reanchored": "of these follow another than they waited for, which is not in the plan"}


def paced(plan) -> str:
    """`dependent pace, idle capped at 25 ms`, `original pace, stream 1 at depth 4`."""
    words = [f"{plan.pace} pace"]
    if plan.idle.cap_ns is not None:
        words.append(str(plan.idle))
    words += [f"stream {stream} at {pace}" for stream, pace in plan.stream_paces.items()]
    return ", ".join(words)


def show_plan(plan, as_json: bool) -> None:
    """A dry run. A dependent plan is made once for nothing, to tell what waits for what."""
    if any(pace.dependent for pace in plan.paces):
        for _ in plan.batches():
            pass
    if as_json:
        print(json.dumps(_document(plan)))
        return
    where = " and ".join(str(target.path) for target in plan.targets)
    print(f"would replay {format_count(plan.total_ios)} I/Os on {where}, {paced(plan)}; nothing touched")
    for drive in plan.drives:
        if len(plan.drives) > 1:
            print(f"  {drive.target.path}, for device {drive.device} of the trace:")
        _show_drive(drive)
    pace = plan.pace_account()
    if pace["dependencies"]:
        print(f"  what waits for what is {pace['dependencies']}:")
        for kind, text in _ANCHORED.items():
            print(f"    {format_count(pace['anchored'][kind]):>12} {text}")
    threads = pace["threads"]
    if threads["count"] > 1 or threads["note"]:
        print(f"  issued by    {_threads(threads)}")
    if plan.survey.removed_ns:
        print(f"  idle time    {format_ns(plan.survey.removed_ns)} taken out")
    duration = "as long as the drive needs" if plan.duration_ns is None else format_ns(plan.duration_ns)
    print(f"  takes        {duration}")


def state_lines(targets) -> list[str]:
    """`state of /dev/nvme1n1: client, prepared 2 h ago, 3.1 GB written since`, of each drive, as it is now."""
    return [f"state of {target.path}: {state_words(target)}" for target in targets if not target.is_nil]


def _threads(told) -> str:
    """`2 threads, by place`, `1 thread: all threads of the trace waited for each other`."""
    words = f"{told['count']} thread" + ("s" if told["count"] > 1 else "")
    words += f", by {told['by']}" if told["by"] else ""
    return f"{words}: {told['note']}" if told["note"] else words


def _show_drive(drive):
    survey = drive.survey
    for name, count in survey.ios.items():
        print(f"  {name:<12} {format_count(count):>12}   {format_bytes(survey.bytes[name]):>8}")
    print(f"  touches      {format_bytes(survey.touched.bytes)} in {format_count(len(survey.touched))} extents, "
          f"map {drive.mapping.name}")
    print(f"  writes first {format_bytes(drive.prefill.bytes)} in {format_count(len(drive.prefill))} extents")
    print(f"  then changes {format_bytes(drive.changed_bytes)} as the trace does")


def _document(plan):
    drives = [_drive_document(drive) for drive in plan.drives]
    first = drives[0]
    return {"version": 1, "dry_run": True, **first, "drives": drives if len(drives) > 1 else None,
            "pace": plan.pace_account(), "plan_ns": plan.duration_ns, "removed_idle_ns": plan.survey.removed_ns}


def _drive_document(drive):
    survey = drive.survey
    return {"target": str(drive.target.path), "device": drive.device, "ops": survey.ios, "bytes": survey.bytes,
            "touched": {"extents": len(survey.touched), "bytes": survey.touched.bytes}, "map": drive.mapping.name,
            "prefill": {"extents": len(drive.prefill), "bytes": drive.prefill.bytes},
            "changed_by_trace_bytes": drive.changed_bytes}


def show_run(account, directory) -> None:
    ops, wall_ns, plan_ns = account["completed_ops"], account["wall_ns"], account["plan_ns"]
    print(f"{directory.path}: {account['label']}")
    planned = f", planned {format_ns(plan_ns)} to the last issue" if plan_ns is not None else ""
    print(f"  {format_count(ops)} of {format_count(account['planned_ops'])} I/Os, "
          f"{format_bytes(account['moved_bytes'])} in {format_ns(wall_ns)}{planned}; {account['error_ops']} errors")
    for drive in account["drives"] or [account]:
        _show_state(drive["state"], drive["path"] if account["drives"] else None, account["started_at"])
    late = account["lateness"]
    if late:
        print(f"  issued late by {format_ns(late['p50_ns'])} (median), {format_ns(late['p99_ns'])} (99 %), "
              f"{format_ns(late['max_ns'])} (most); the drive's queue was full for {late['queue_full_ops']:,}")
    pace = account["pace"]
    if pace.get("dependencies"):
        anchored = pace["anchored"]
        print(f"  what waits for what was {pace['dependencies']}: {anchored['waited']:,} waited, "
              f"{anchored['followed'] + anchored['caused']:,} followed, {anchored['absolute']:,} at their own time")
        if account["own_wall_ns"] is not None:
            print(f"  what was captured took {format_ns(account['own_wall_ns'])}, from its first I/O to its last")
    threads = pace["threads"]
    if threads["count"] > 1 or threads["note"]:
        print(f"  issued by {_threads(threads)}")
    if account["hazards"]:
        print(f"  hazards: {account['hazards']:,} I/Os met others over the same blocks, as they had not in the trace")
    for line in certificate_lines(account):
        print(f"  {line}")
    if line := telemetry_line(account.get("telemetry")):
        print(f"  {line}")
    verdict = account["verdict"]
    print(f"  {verdict['level']}")
    for reason in verdict["reasons"]:
        print(f"    {reason['level']}: {reason['text']}")


def _show_state(state, path, started_at):
    """As it was when the run began, and by that time."""
    if state["name"]:
        told = drive_state.words(state, datetime.fromisoformat(started_at), state.get("by_others_bytes"))
        print(f"  began on {f'{path}, ' if path else ''}{told}")
        for note in state["notes"]:
            print(f"    {note}")
