"""`blkreel replay`: reissue a trace on one drive or several."""

import json
import re
import sys

import click

from blkreel.cli.live_steps import shown_name
from blkreel.cli.live_task import live_progress
from blkreel.cli.options import as_json, force, no_live, payload
from blkreel.cli.progress import progress
from blkreel.cli.replay_shown import paced, show_plan, show_run, state_lines
from blkreel.cli.telemetry_options import telemetry_options
from blkreel.replay import calibrate, safety
from blkreel.replay.idle import parse_idle
from blkreel.replay.mapping import parse_map
from blkreel.replay.memory import keep_small
from blkreel.replay.pace import parse_paces
from blkreel.replay.payload import Payload
from blkreel.replay.plan import plan_trace
from blkreel.replay.run import Replay
from blkreel.replay.run_directory import RunDirectory
from blkreel.replay.target import find_target
from blkreel.traces.errors import UsageError
from blkreel.traces.reader import open_trace

NOT_TRUSTWORTHY = 3
MAX_THREADS = 64


@click.command()
@click.argument("trace", type=click.Path(readable=False))
@click.option("--on", "targets", required=True, multiple=True, metavar="[N=]DEVICE",
              help="The drive to replay on; a loop device or a regular file for a trial. For a trace of several "
                   "devices one each: --on 0=/dev/sda --on 1=/dev/sdb.")
@click.option("-o", "--output", type=click.Path(readable=False), metavar="RUN", help="The directory of the run.")
@click.option("--pace", "paces", multiple=True, metavar="[STREAM:]PACE",
              help="original: at the captured times. x2, x0.5: twice, half as fast. dependent: when what it waited for "
                   "is done. asap: as fast as the drive takes them. depth=N: always N outstanding. With STREAM: for "
                   "that stream of the trace alone. [default: original]")
@click.option("--idle", default="original", show_default=True, metavar="IDLE",
              help="The drive's idle time: original, cap=25ms (shorten longer gaps to that), none.")
@click.option("--map", "wanted_map", metavar="MAP",
              help="Where the I/Os go. identity (or refuse): to the same offsets, or nowhere. compact: packed. "
                   "wrap: modulo the target's size. scale: spread or squeezed to it. tile[=N]: copies side by side. "
                   "[default: identity where the trace fits, else compact]")
@click.option("--destroy", multiple=True, metavar="SERIAL",
              help="The drive's serial: consent to lose all data on it. Once for each drive.")
@click.option("--prefill/--no-prefill", default=True, show_default=True,
              help="Write once beforehand what the trace reads before it writes it.")
@click.option("--threads", default="1", show_default=True, metavar="N|auto",
              help="How many threads issue. auto: more than one only where the trace is too fast for one.")
@click.option("--label", metavar="TEXT", help="A name for the run in reports. [default: drive and pace]")
@click.option("--device", type=int, metavar="N", help="Which device of a trace that holds several.")
@click.option("--seed", default=1, show_default=True, help="Of the data that is written.")
@payload
@telemetry_options
@click.option("--polled", is_flag=True, help="Look for completions at the drive instead of waiting for interrupts.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, and touch nothing.")
@no_live
@force
@as_json
def command(trace, targets, output, paces, idle, wanted_map, destroy, prefill, threads, label, device, seed,
            compressible, duplicates, telemetry, polled, dry_run, no_live, force, as_json):
    """Reissue a trace on a drive, and record what each I/O took.

    Whatever the trace writes overwrites the drive. A real drive therefore has to be named by its serial
    with --destroy; nothing is written before every check has passed. Ends with 3 where the run cannot be
    trusted: I/O errors, I/Os that this machine issued late, foreign I/O, or an interruption, which still
    leaves a readable run marked as partial.

    \b
    blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --dry-run
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run-load/ --pace dependent --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run-25ms/ --idle cap=25ms --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/loop5 -o run-depth/ --pace depth=32
    sudo blkreel replay both.parquet --on 0=/dev/loop5 --on 1=/dev/loop6 -o run-both/ --pace x2
    """
    keep_small()
    if not output and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output': the directory of the run.")
    idle_policy, wanted_map, thread_count = parse_idle(idle), parse_map(wanted_map), parse_threads(threads)
    opened = open_trace(trace)
    places = find_targets(targets, device)
    if polled:
        for place in places.values():
            place.require_polling()
    drive = min((place.drive for place in places.values()), key=lambda one: one.queue_depth or 128)
    chosen, of_stream = parse_paces(paces, drive)
    directory = RunDirectory(output, force) if output else None
    if directory:
        directory.check()
    with progress("reading the trace", opened.rows) as task:
        plan = plan_trace(opened, places.get(None, places), pace=chosen, stream_paces=of_stream,
                          idle=idle_policy, wanted_map=wanted_map, device=device, prefill=prefill,
                          threads=thread_count, on_rows=task.update)
    if dry_run:
        show_plan(plan, as_json)
        return 0
    safety.check_all([(drive.target, drive.writes) for drive in plan.drives], destroy=destroy,
                     argv=["blkreel", *sys.argv[1:]])
    warning = calibrate.warning_for(plan.total_ios, plan.duration_ns)
    if warning:
        print(f"blkreel: warning: {warning}", file=sys.stderr)
    for line in state_lines(plan.targets):
        print(f"blkreel: {line}", file=sys.stderr)
    account = Replay(plan, directory, label or _label(plan), seed, _progress_of(plan, no_live), force,
                     Payload(compressible, duplicates), polled, last_use=True, telemetry=telemetry).run()
    if as_json:
        print(json.dumps({"version": 1, "path": str(directory.path), "run": account}))
    else:
        show_run(account, directory)
    return NOT_TRUSTWORTHY if account["verdict"]["level"] == "invalid" else 0


def _progress_of(plan, no_live):
    """Of what is written beforehand and of the replay itself what the drives do."""
    drives = [shown_name(target) for target in plan.targets]

    def shown(step, total=None):
        # What is written beforehand is written to one drive after the other, and no row of it says to which.
        named = drives if step == "replaying" or len(drives) == 1 else ["the drive"]
        return live_progress(step, total, named, live=False if no_live else None)

    return shown


def _label(plan) -> str:
    drives = " and ".join(target.drive.model or target.drive.name for target in plan.targets)
    return f"{drives}, {paced(plan)}"


def find_targets(words, device: int | None) -> dict:
    """The targets by the device of the trace that they stand for; by None where one is to stand for the only one."""
    found = {}
    for word in words:
        match = re.fullmatch(r"(\d+)=(.+)", word)
        index, path = (int(match[1]), match[2]) if match else (None, word)
        if index in found:
            what = f"for device {index}" if match else "without the device it stands for"
            raise UsageError(f"--on is given twice {what}", "name one drive for each: --on 0=DEVICE --on 1=DEVICE")
        found[index] = find_target(path)
    if None in found and len(found) > 1:
        raise UsageError("--on names drives with and without the device of the trace that they stand for",
                         "name it for each: --on 0=DEVICE --on 1=DEVICE")
    if None not in found and device is not None:
        raise UsageError("--device says again what --on says", "leave out --device")
    return found


def parse_threads(text: str) -> int | str:
    """A number, or `auto`. Raises UsageError."""
    if text == "auto":
        return text
    if not re.fullmatch(r"\d{1,4}", text) or not 1 <= int(text) <= MAX_THREADS:
        raise UsageError(f"--threads {text!r} is none of the choices", f"use auto, or 1 to {MAX_THREADS}")
    return int(text)
