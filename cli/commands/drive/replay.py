"""`blkreel replay`: reissue a trace on one drive or several."""

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click
from rich.markup import escape

from blkreel.analysis.report import present
from blkreel.cli.options import completion
from blkreel.cli.options.detail import detail_options
from blkreel.cli.options.device import device_option, note_numbers
from blkreel.cli.options.telemetry import telemetry_options
from blkreel.cli.options.types import NOT_TRUSTWORTHY, OutputPath, SectionedCommand, as_json, force, no_live, payload
from blkreel.cli.ui.live_task import live_progress
from blkreel.cli.ui.progress import progress
from blkreel.cli.ui.replay_summary import repetition_lines, show_plan, state_lines, summary_lines
from blkreel.cli.ui.step_progress import StepProgress, display_name
from blkreel.common.command_line import command_line
from blkreel.common.console import Console, Detail, warn
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.limits import limit_memory_use
from blkreel.common.progress import Progress, ProgressTask
from blkreel.common.units import parse_time_ns
from blkreel.replay.background.plan import PlanBeside, plan_beside
from blkreel.replay.background.spec import parse_background
from blkreel.replay.drive import safety
from blkreel.replay.drive.state import file_of, start_fresh
from blkreel.replay.drive.target import Target, find_target, namespace_of
from blkreel.replay.engine.engine import Payload
from blkreel.replay.fidelity.host_effect import EffectLimits, parse_limits
from blkreel.replay.plan.mapping import Part, parse_map
from blkreel.replay.plan.pace import parse_idle, parse_paces, with_compute
from blkreel.replay.plan.plan import Plan, TracePlan
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.prepare.restore import StateRecipe, recipes_of, restore
from blkreel.replay.run import calibrate
from blkreel.replay.run.account import WITHOUT
from blkreel.replay.run.baseline import check_writes, run_with_baseline
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.run.repetitions import MOST_ATTEMPTS, MOST_REPETITIONS, Repetitions
from blkreel.replay.run.run import Outcome, Replay, ReplayOptions
from blkreel.replay.run.write_flags import issued_without
from blkreel.replay.telemetry.options import TelemetryOptions
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import COMPRESSED_RUN_SCHEMA
from blkreel.traces.spool.space import shortage

MAX_THREADS = 64


@click.command(cls=SectionedCommand, common=(
    "targets", "output", "paces", "destroy", "baseline", "backgrounds", "repeat", "until_valid", "dry_run"))
@click.argument("trace", type=click.Path(readable=False), shell_complete=completion.traces)
@click.option("--on", "targets", required=True, multiple=True, metavar="[N=]DEVICE",
              shell_complete=completion.drives,
              help="Target drive; for a trial also a loop device or a file. Of several devices: --on 0=/dev/sda "
                   "--on 1=/dev/sdb.")
@click.option("-o", "--output", type=OutputPath(str), metavar="RUN", help="Directory of the run to write.")
@click.option("--pace", "paces", multiple=True, metavar="[STREAM:]PACE", shell_complete=completion.paces,
              help="original: at the captured times. x2, x0.5: twice, half as fast. paced: also with at most as many "
                   "in flight. dependent: after the I/Os that each waited for. asap: as fast as possible. depth=N: "
                   "always N in flight. STREAM: of the trace. [default: original]")
@click.option("--compute", metavar="xN",
              help="At dependent pace, divide the computing time between I/Os, as on a faster machine: x4; none: leave "
                   "it out.")
@click.option("--idle", default="original", show_default=True, metavar="IDLE",
              shell_complete=completion.idle_policies,
              help="Idle time: original, cap=25ms (cut longer gaps), none.")
@click.option("--map", "wanted_map", metavar="MAP", shell_complete=completion.mappings,
              help="identity: same offsets, or an error. compact: without unused ranges. wrap: modulo the size. scale: "
                   "stretched to the size. tile[=N]: N copies. [default: identity if the trace fits, else compact]")
@click.option("--destroy", multiple=True, metavar="SERIAL",
              help="Serial number of each drive: confirms that its data is destroyed.")
@click.option("--prefill/--no-prefill", default=True, show_default=True,
              help="Before the replay, write the blocks that the trace reads first.")
@click.option("--without", type=click.Choice(["writes"]),
              help="Leave out a kind of I/O. writes: replay the reads only.")
@click.option("--baseline", is_flag=True,
              help="Also replay without --background, or else without the trace's writes, into RUN/baseline, to "
                   "measure the slowdown.")
@click.option("--background", "backgrounds", multiple=True, metavar="BACKGROUND", shell_complete=completion.traces,
              help="I/O beside the trace, on its own part of the drive: TRACE[,rate=1Gbit], writes=110MB/s, "
                   "writes=40MB/2s (bursts), writes=200MB/s,block=128KiB,random. Repeatable.")
@click.option("--background-lead", default="10s", show_default=True, metavar="TIME",
              help="Time from the start of the background to that of the trace.")
@click.option("--threads", default="1", show_default=True, metavar="N|auto",
              help="Number of issuing threads. auto: several if the trace is too fast for one.")
@click.option("--label", metavar="TEXT", help="Name of the run in reports. [default: the drive]")
@device_option
@click.option("--seed", type=click.IntRange(0), metavar="N", default=1, show_default=True,
              help="Seed of the written data.")
@payload
@telemetry_options
@click.option("--effect-limits", default=str(EffectLimits()), show_default=True, metavar="A%:B%",
              help="Effect of this host on a metric that is accepted, and at which it is withheld.")
@click.option("--polled", is_flag=True, help="Poll the drive for completions instead of waiting for interrupts.")
@click.option("--passthrough", is_flag=True,
              help="Send NVMe commands through the character device of the namespace (/dev/ngXnY).")
@click.option("--repeat", type=click.IntRange(1, MOST_REPETITIONS), metavar="N",
              help="Replay N times, into RUN/1 to RUN/N, each from the drive's remembered state.")
@click.option("--until-valid", is_flag=True,
              help=f"Until N runs are not invalid, at most {MOST_ATTEMPTS} * N.")
@click.option("--dry-run", is_flag=True, help="Print the plan and exit without I/O.")
@detail_options("why")
@no_live
@force
@as_json
def command(trace: str, targets: tuple[str, ...], output: str | None, paces: tuple[str, ...], compute: str | None,
            idle: str, wanted_map: str | None, destroy: tuple[str, ...], prefill: bool, without: str | None,
            baseline: bool, backgrounds: tuple[str, ...], background_lead: str, threads: str, label: str | None,
            device: int | None, seed: int, compressible: int, duplicates: int, telemetry: TelemetryOptions,
            effect_limits: str, polled: bool, passthrough: bool, repeat: int | None, until_valid: bool,
            dry_run: bool, detail: Detail, no_live: bool, force: bool, as_json: bool) -> int:
    """Replay a trace on one or more drives, and record the latency of each I/O.

    Replaying writes to the drive and destroys its data; for a real drive, --destroy SERIAL confirms that.
    Nothing is written before all safety checks have passed. Exit code 3 if the run is not trustworthy: I/O errors,
    external I/O, delays of this machine that changed the result, or an interruption, which leaves a partial run.
    The same command continues interrupted repetitions.

    \b
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run-load/ --pace dependent --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --pace dependent \\
        --background writes=110MB/s --baseline --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run-25ms/ --idle cap=25ms --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o runs/ --repeat 6 --until-valid --destroy S6B0NL0T1234
    sudo blkreel replay game.parquet --on /dev/loop5 -o run-depth/ --pace depth=32
    sudo blkreel replay both.parquet --on 0=/dev/loop5 --on 1=/dev/loop6 -o run-both/ --pace x2
    """
    limit_memory_use()
    if not output and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output': directory of the run.")
    limits = parse_limits(effect_limits)
    idle_policy, wanted_map, thread_count = parse_idle(idle), parse_map(wanted_map), parse_threads(threads)
    opened = open_trace(trace)
    if polled and passthrough:
        raise UsageError("--polled and --passthrough exclude each other", "omit one of them")
    target_of = find_targets(targets, device, passthrough)
    if polled:
        for target in target_of.values():
            target.require_polling()
    targets_by_device = target_of.get(None) or {
        index: target for index, target in target_of.items() if index is not None}
    note_numbers(opened, [device, *target_of])
    shallowest = min((target.drive for target in target_of.values()), key=lambda drive: drive.queue_depth or 128)
    pace, stream_paces = parse_paces(paces, shallowest)
    if compute is not None:
        pace = with_compute(pace, compute)
    specs, lead_ns = [parse_background(text) for text in backgrounds], parse_time_ns(background_lead)
    if specs and len(target_of) > 1:
        raise UsageError("--background needs a single drive", "replay the devices one after the other: --device N")
    settings = {"trace": str(Path(trace).absolute()) if Path(trace).exists() else trace, "on": list(targets),
                "pace": list(paces), "compute": compute, "idle": idle, "map": wanted_map, "prefill": prefill,
                "without": without, "baseline": baseline, "background": list(backgrounds),
                "background_lead": background_lead, "threads": threads, "label": label, "device": device, "seed": seed,
                "compressible": compressible, "duplicates": duplicates, "polled": polled,
                "passthrough": passthrough,
                "effect_limits": str(limits), "trace_content": opened.footer.identity,
                "drive": [file_of(target).stem for target in target_of.values()],
                "background_content": [open_trace(spec.trace).footer.identity for spec in specs if spec.trace]}
    repetitions = Repetitions(output or "", repeat, until_valid, settings, force) if repeat else None
    if output:
        (repetitions or RunDirectory(output, force)).check()

    def make_plan(without: tuple[str, ...], part: Part | None = None,
                  map_name: str | None = wanted_map) -> TracePlan:
        with progress("reading the trace", opened.rows) as task:
            return plan_trace(opened, targets_by_device, pace=pace, stream_paces=stream_paces, idle=idle_policy,
                              map_name=map_name, device=device, prefill=prefill, threads=thread_count,
                              on_rows=task.update, without=without, part=part)

    def make_plans(number: int = 1) -> _Plans:
        left_out = (without,) if without else ()
        if specs:
            beside = plan_beside(functools.partial(make_plan, left_out), next(iter(target_of.values())), specs,
                                 lead_ns=lead_ns, map_name=wanted_map, prefill=prefill, seed=seed)
            return beside.repetition(number), beside.foreground if baseline else None
        plan = make_plan(left_out)
        if baseline:
            check_writes(plan, trace)
        return plan, make_plan(WITHOUT) if baseline else None

    plans = make_plans()
    if output:
        runs = [plan.total_ios for plan in plans if plan is not None] * (repeat or 1)
        warn(filter(None, [shortage(output, runs, COMPRESSED_RUN_SCHEMA)]))
    if dry_run:
        warn(issued_without(plans[0], passthrough=passthrough))
        warn(safety.forecast(lambda: _check_drives(plans[0], destroy)))
        show_plan(plans[0], as_json)
        return 0
    assert output is not None
    label = label or " and ".join(target.drive.model or target.drive.name for target in plans[0].targets)
    options = ReplayOptions(label, seed, Payload(compressible, duplicates), polled, passthrough,
                            telemetry.for_several_runs() if baseline or repetitions else telemetry, limits)
    session = _Session(destroy, options, detail, False if no_live else None, as_json)
    session.check(plans[0])
    session.describe(plans[0])
    if repetitions is None:
        return session.replay_once(plans, RunDirectory(output, force), force)
    with repetitions.locked():
        return session.repeat(plans, make_plans, repetitions)


def _check_drives(plan: Plan, destroy: Sequence[str]) -> list[str]:
    return safety.check_all([(drive.target, drive.writes) for drive in plan.drives], destroy=destroy)


_Plans = tuple[Plan, TracePlan | None]  # of a run, and of its baseline


@dataclass(frozen=True)
class _Session:
    """Runs plans with the same options. live: False for the one-line bar."""

    destroy: tuple[str, ...]
    options: ReplayOptions
    detail: Detail
    live: bool | None
    as_json: bool

    def check(self, plan: Plan) -> None:
        """Check the drives, last before the first write."""
        warn(_check_drives(plan, self.destroy))
        start_fresh(plan.targets)

    def describe(self, plan: Plan) -> None:
        if warning := calibrate.warning_for(plan.total_ios, plan.duration_ns):
            warn([warning])
        written_bytes = sum(drive.changed_bytes + drive.prefill.bytes for drive in plan.drives)
        if warning := self.options.payload.few_copies(written_bytes):
            warn([warning])
        warn(issued_without(plan, passthrough=self.options.passthrough))
        for line in state_lines(plan.targets):
            _say(line)

    def replay_once(self, plans: _Plans, directory: RunDirectory, force: bool) -> int:
        account, _ = self._replay(plans, directory, self.options, force)
        if self.as_json:
            print_json({"version": 1, "path": str(directory.path), "run": account})
        else:
            self._print(directory.path, summary_lines)
            print(f"next: {command_line('report', directory.path)}")
        return NOT_TRUSTWORTHY if account["verdict"]["level"] == "invalid" else 0

    def repeat(self, plans: _Plans, make_plans: Callable[[int], _Plans], repetitions: Repetitions) -> int:
        """Exit code 3 unless all repetitions are trustworthy; with --until-valid, unless as many as wanted are.

        plans: of the first repetition. Raises Interrupted after Ctrl-C.
        """
        states = repetitions.states(lambda: recipes_of(plans[0]))
        _warn_of_unknown_states(plans[0], states)
        for repetition in repetitions.finished:
            _say(f"{repetition.path} is finished")
        next_plans: _Plans | None = plans
        while repetitions.attempts_left:
            number, directory = repetitions.next()
            directory.check()
            plans, next_plans = next_plans if next_plans and number == 1 else make_plans(number), None
            self.check(plans[0])
            self._restore_states(plans[0], states, number)
            restore_again = functools.partial(self._restore_states, plans[0], states, number)
            options = replace(self.options, seed=self.options.seed + number - 1)
            account, asked_to_stop = self._replay(plans, directory, options, True, restore_again, number)
            done = repetitions.add(number, account)
            if not self.as_json:
                self._print(done.path, repetition_lines)
            if asked_to_stop and repetitions.attempts_left:
                raise repetitions.interrupted()
        invalid = [repetition for repetition in repetitions.finished if not repetition.is_valid]
        if self.as_json:
            print_json({"version": 1, "path": str(repetitions.path), "complete": repetitions.is_complete,
                        "repetitions": [{"path": str(repetition.path), "run": repetition.account}
                                        for repetition in repetitions.finished]})
        else:
            print(f"{repetitions.path}: {len(repetitions.finished)} runs, {len(invalid)} invalid")
            drop = ["--drop-invalid"] if 0 < len(invalid) < len(repetitions.finished) else []
            print(f"next: {command_line('compare', repetitions.path, *drop)}")
        trustworthy = repetitions.is_complete if repetitions.until_valid else not invalid
        return 0 if trustworthy else NOT_TRUSTWORTHY

    def _replay(self, plans: _Plans, directory: RunDirectory, options: ReplayOptions, force: bool,
                restore_states: Callable[[], None] = lambda: None, number: int = 1) -> Outcome:
        """restore_states: called between the baseline and the run.
        number: of the repetition. With a background, every other one has its baseline last."""
        plan, baseline_plan = plans
        run = Replay(plan, directory, options, _progress(plan, self.live), force, last_use=True)
        if baseline_plan is None:
            return run.issue()

        def between() -> None:
            start_fresh(plan.targets)
            restore_states()

        baseline_last = isinstance(plan, PlanBeside) and number % 2 == 0
        return run_with_baseline(run, baseline_plan, between, baseline_last=baseline_last)

    def _restore_states(self, plan: Plan, states: Sequence[StateRecipe | None], number: int) -> None:
        for drive, recipe in zip(plan.drives, states, strict=True):
            if recipe is None:
                continue
            step_progress = StepProgress(display_name(drive.target), self.live)
            if restore(plan, drive, recipe, number, step_progress, notify=_say) is not None:
                _say(f"{drive.target.path} is in the state {recipe.name} again")

    def _print(self, run: Path, lines: Callable[[Mapping[str, Any], Detail, int], list[str]]) -> None:
        console = Console()
        console.print_lines(map(escape, lines(present.report(run), self.detail, console.width)))


def _say(line: str) -> None:
    print(f"blkreel: {line}", file=sys.stderr)


def _warn_of_unknown_states(plan: Plan, states: Sequence[StateRecipe | None]) -> None:
    warn(f"the state of {target.path} is unknown: each repetition starts from what the previous one left; put it "
         f"into a state first: blkreel precondition {target.path} --state client"
         for target, recipe in zip(plan.targets, states, strict=True) if recipe is None and not target.is_nil)


def _progress(plan: Plan, live: bool | None) -> Progress:
    drives = [display_name(target) for target in plan.targets]

    def show(step: str, total: float | None = None) -> AbstractContextManager[ProgressTask]:
        # The prefill writes to one drive after the other, and its rows do not name the drive.
        names = drives if step == "replaying" or len(drives) == 1 else ["the drive"]
        return live_progress(step, total, names, live=live)

    return show


def find_targets(arguments: Sequence[str], device: int | None,
                 passthrough: bool = False) -> dict[int | None, Target]:
    """The target for each device of the trace, or {None: target} for a trace of one device. Raises UsageError.

    passthrough: an NVMe namespace, also by its character device.
    """
    remedy = "name one drive for each device: --on 0=DEVICE --on 1=DEVICE"
    targets: dict[int | None, Target] = {}
    for argument in arguments:
        match = re.fullmatch(r"([0-9]{1,9})=(.+)", argument)
        index, path = (int(match[1]), match[2]) if match else (None, argument)
        if index in targets:
            which = f"for device {index}" if match else "without a device number"
            raise UsageError(f"--on given twice {which}", remedy)
        targets[index] = find_target(namespace_of(path) if passthrough else path)
        if passthrough:
            targets[index].require_commands()
    if None in targets and len(targets) > 1:
        raise UsageError("--on given with and without a device number", remedy)
    if None not in targets and device is not None:
        raise UsageError("--device repeats the device number of --on", "leave out --device")
    return targets


def parse_threads(text: str) -> int | Literal["auto"]:
    """A number, or `auto`. Raises UsageError."""
    if text == "auto":
        return "auto"
    if not re.fullmatch(r"\d{1,4}", text) or not 1 <= int(text) <= MAX_THREADS:
        raise UsageError(f"invalid --threads: {text!r}", f"use auto, or 1 to {MAX_THREADS}")
    return int(text)
