"""`blkreel replay`: reissue a trace on a drive."""

import json
import sys

import click

from blkreel.cli.options import as_json, force
from blkreel.cli.progress import progress
from blkreel.replay import calibrate, safety
from blkreel.replay.certificate import certificate_lines
from blkreel.replay.idle import parse_idle
from blkreel.replay.pace import parse_pace
from blkreel.replay.plan import plan_trace
from blkreel.replay.run import Replay
from blkreel.replay.run_directory import RunDirectory
from blkreel.replay.target import find_target
from blkreel.traces.reader import open_trace
from blkreel.traces.units import format_bytes, format_count, format_ns

NOT_TRUSTWORTHY = 3


@click.command()
@click.argument("trace", type=click.Path(readable=False))
@click.option("--on", "target", required=True, type=click.Path(readable=False), metavar="DEVICE",
              help="The drive to replay on; a loop device or a regular file for a trial.")
@click.option("-o", "--output", type=click.Path(readable=False), metavar="RUN", help="The directory of the run.")
@click.option("--pace", default="original", show_default=True, metavar="PACE",
              help="original: at the captured times. asap: as fast as the drive takes them. "
                   "depth=N: always N outstanding.")
@click.option("--idle", default="original", show_default=True, metavar="IDLE",
              help="The drive's idle time: original, cap=25ms (shorten longer gaps to that), none.")
@click.option("--map", "wanted_map", type=click.Choice(["identity", "compact"]),
              help="Where the I/Os go: to the same offsets, or packed. [default: identity where the trace fits]")
@click.option("--destroy", metavar="SERIAL", help="The drive's serial: consent to lose all data on it.")
@click.option("--prefill/--no-prefill", default=True, show_default=True,
              help="Write once beforehand what the trace reads before it writes it.")
@click.option("--label", metavar="TEXT", help="A name for the run in reports. [default: drive and pace]")
@click.option("--device", type=int, metavar="N", help="Which device of a trace that holds several.")
@click.option("--seed", default=1, show_default=True, help="Of the data that is written.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, and touch nothing.")
@force
@as_json
def command(trace, target, output, pace, idle, wanted_map, destroy, prefill, label, device, seed, dry_run, force,
            as_json):
    """Reissue a trace on a drive, and record what each I/O took.

    Whatever the trace writes overwrites the drive. A real drive therefore has to be named by its serial
    with --destroy; nothing is written before every check has passed. Ends with 3 where the run cannot be
    trusted: I/O errors, I/Os that this machine issued late, foreign I/O, or an interruption, which still
    leaves a readable run marked as partial.

    \b
    blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --dry-run
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run-25ms/ --idle cap=25ms --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/loop5 -o run-depth/ --pace depth=32
    """
    if not output and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output': the directory of the run.")
    idle_policy = parse_idle(idle)
    opened = open_trace(trace)
    place = find_target(target)
    chosen_pace = parse_pace(pace, place.drive)
    directory = RunDirectory(output, force) if output else None
    if directory:
        directory.check()
    with progress("reading the trace", opened.rows) as task:
        plan = plan_trace(opened, place, pace=chosen_pace, idle=idle_policy, wanted_map=wanted_map, device=device,
                          prefill=prefill, on_rows=task.update)
    if dry_run:
        _show_plan(plan, as_json)
        return 0
    safety.check(place, writes=plan.writes, destroy=destroy, argv=["blkreel", *sys.argv[1:]])
    warning = calibrate.warning_for(plan.total_ios, plan.duration_ns)
    if warning:
        print(f"blkreel: warning: {warning}", file=sys.stderr)
    account = Replay(plan, directory, label or f"{place.drive.model or place.drive.name}, {_paced(plan)}", seed,
                     progress, force).run()
    if as_json:
        print(json.dumps({"version": 1, "path": str(directory.path), "run": account}))
    else:
        _show_run(account, directory)
    return NOT_TRUSTWORTHY if account["verdict"]["level"] == "invalid" else 0


def _paced(plan) -> str:
    return f"{plan.pace} pace" if plan.idle.cap_ns is None else f"{plan.pace} pace, {plan.idle}"


def _show_plan(plan, as_json):
    survey = plan.survey
    if as_json:
        print(json.dumps({
            "version": 1, "dry_run": True, "target": str(plan.target.path), "ops": survey.ios, "bytes": survey.bytes,
            "touched": {"extents": len(survey.touched), "bytes": survey.touched.bytes}, "map": plan.mapping.name,
            "prefill": {"extents": len(plan.prefill), "bytes": plan.prefill.bytes},
            "changed_by_trace_bytes": plan.changed_bytes, "plan_ns": plan.duration_ns,
            "removed_idle_ns": survey.removed_ns}))
        return
    print(f"would replay {format_count(plan.total_ios)} I/Os on {plan.target.path}, {_paced(plan)}; nothing touched")
    for name, count in survey.ios.items():
        print(f"  {name:<12} {format_count(count):>12}   {format_bytes(survey.bytes[name]):>8}")
    print(f"  touches      {format_bytes(survey.touched.bytes)} in {format_count(len(survey.touched))} extents, "
          f"map {plan.mapping.name}")
    print(f"  writes first {format_bytes(plan.prefill.bytes)} in {format_count(len(plan.prefill))} extents")
    print(f"  then changes {format_bytes(plan.changed_bytes)} as the trace does")
    if survey.removed_ns:
        print(f"  idle time    {format_ns(survey.removed_ns)} taken out")
    duration = "as long as the drive needs" if plan.duration_ns is None else format_ns(plan.duration_ns)
    print(f"  takes        {duration}")


def _show_run(account, directory):
    ops, wall_ns, plan_ns = account["completed_ops"], account["wall_ns"], account["plan_ns"]
    print(f"{directory.path}: {account['label']}")
    planned = f", planned {format_ns(plan_ns)} to the last issue" if plan_ns is not None else ""
    print(f"  {format_count(ops)} of {format_count(account['planned_ops'])} I/Os, "
          f"{format_bytes(account['moved_bytes'])} in {format_ns(wall_ns)}{planned}; {account['error_ops']} errors")
    late = account["lateness"]
    if late:
        print(f"  issued late by {format_ns(late['p50_ns'])} (median), {format_ns(late['p99_ns'])} (99 %), "
              f"{format_ns(late['max_ns'])} (most); the drive's queue was full for {late['queue_full_ops']:,}")
    for line in certificate_lines(account):
        print(f"  {line}")
    verdict = account["verdict"]
    print(f"  {verdict['level']}")
    for reason in verdict["reasons"]:
        print(f"    {reason['level']}: {reason['text']}")
