"""Run a plan: write the blocks that it reads, issue it, and write the run with its account."""

import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from blkreel.common.emulated import FittedFacts, fitted_facts_of
from blkreel.common.errors import BlkreelError
from blkreel.common.files.json_file import write_json
from blkreel.common.files.safe_files import remove_directory, unlink
from blkreel.common.limits import limit_reached
from blkreel.common.progress import Progress, ProgressTask
from blkreel.common.units import format_count, format_ns
from blkreel.replay.background.account import Backgrounds
from blkreel.replay.background.phases import PhaseTimes, other_phases, states_before
from blkreel.replay.background.plan import PlanBeside
from blkreel.replay.drive import state
from blkreel.replay.drive.claim import Claim, held
from blkreel.replay.drive.external_io import sum_or_none
from blkreel.replay.drive.target import Target, engine_options
from blkreel.replay.drive.write_support import WriteSupport, write_support
from blkreel.replay.engine.engine import (
    BLOCK_ROWS,
    PLAN_BLOCKS_AHEAD,
    Batch,
    Engine,
    EngineNote,
    EngineOptions,
    EngineTotals,
    Lane,
    Payload,
    run_engine,
)
from blkreel.replay.engine.untimed_io import INTERRUPTED, Interrupted, issue_untimed, sigterm_as_interrupt
from blkreel.replay.fidelity.certificate import Certificate, certified
from blkreel.replay.fidelity.host_effect import EffectLimits, HostEffect
from blkreel.replay.fidelity.verdict import judge
from blkreel.replay.plan.batch import plan_batch
from blkreel.replay.plan.extents import MappedBlocks
from blkreel.replay.plan.plan import DrivePlan, Plan, PlannedCounts, TracePlan
from blkreel.replay.plan.zoned import ZonePlan
from blkreel.replay.prepare.compares import compare_data, compared_blocks
from blkreel.replay.prepare.states import PREFILL_BYTES, PREFILL_DEPTH
from blkreel.replay.simulated import state as simulated_state
from blkreel.replay.simulated.fitted import FittedReads
from blkreel.replay.simulated.state import SimulatedState
from blkreel.replay.streams.rules import ranges
from blkreel.replay.telemetry.options import TelemetryOptions
from blkreel.replay.telemetry.recorder import Recorder
from blkreel.traces.format.reader import BASELINE, LATENCY_LOG
from blkreel.traces.format.schema import COMPRESSED_RUN_SCHEMA, HINTS, OPS, RUN_SCHEMA
from blkreel.traces.spool.spool import Spool

from .account import RunAccount, baseline_account
from .directory import LAYOUT, RunDirectory
from .drive import RunDrive
from .environment import environment, uses_page_cache
from .records import IoChecksum, PrefixChecksum, RunRecords, foreground_of
from .turnaround import turnaround_ns
from .zero_latency import compute_curve, zero_latency

_NOTE_EVERY_S = 2.0
# Totals of the engine that the account copies. The others follow from the records.
_ENGINE_TOTALS = ("cpu", "realtime", "memory_locked", "direct", "split_ops", "max_outstanding", "involuntary_switches",
                  "realtime_given_up", "features", "lanes", "window_full")
# Rows of a plan in the helper, in its pipe, and in the batch being made.
_READ_AHEAD_ROWS = (PLAN_BLOCKS_AHEAD + 2) * BLOCK_ROWS
_KILLED = "the replay was killed before its end"


class Outcome(NamedTuple):
    """asked_to_stop: whether Ctrl-C was pressed during the run, even too late to stop anything."""

    account: RunAccount
    asked_to_stop: bool


@dataclass(frozen=True)
class ReplayOptions:
    """How plans are issued: the same from the command to the engine. label: of the drive. seed: of the data written."""

    label: str
    seed: int
    payload: Payload = Payload()
    polled: bool = False
    passthrough: bool = False
    telemetry: TelemetryOptions = TelemetryOptions()
    effect_limits: EffectLimits = EffectLimits()
    engine: Engine = run_engine


@dataclass(frozen=True)
class Replay:
    """A plan to issue, and where its run goes. Check the target (safety) and the output before run().

    last_use: the plan is not used again, so its block sets may be freed. about: added to the account's `source`.
    baseline: the account of the run without the writes, in the folder `baseline` of the output.
    """

    plan: Plan
    output: RunDirectory
    options: ReplayOptions
    progress: Progress
    force: bool = False
    last_use: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    baseline: RunAccount | None = None

    def run(self) -> RunAccount:
        """The account of the run, which is the metadata key `run` of its records.

        After an interruption the account says so (`partial`). After an error no file has the final name.
        """
        return self.issue().account

    def issue(self) -> Outcome:
        """As run(), with whether Ctrl-C was pressed."""
        self.output.create()
        try:
            return _Run(self).issue()
        finally:
            self.output.release()


def _fitted_facts(target: Target) -> FittedFacts | None:
    """Of a simulated or emulated drive that was fitted to runs."""
    return target.simulated.fitted if target.simulated else fitted_facts_of(target.drive.backing_file)


class _Run:
    """A plan while it is issued: its spool, its counts, and the account of them."""

    def __init__(self, replay: Replay):
        self.replay, self.plan, self.output, self.options = replay, replay.plan, replay.output, replay.options
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._source = {**self.plan.source(), **replay.about}
        self._environment = environment(self.plan.target)
        self._drives = [RunDrive(drive, replay.options.passthrough) for drive in self.plan.drives]
        self._totals: EngineTotals = {}
        self._planned_counts = PlannedCounts()
        self._start_ns: int | None = None
        self._turnaround_ns: int | None = None
        self._zero_latency: dict[str, Any] | None = None
        self._compute_curve: list[dict[str, Any]] | None = None
        self._phases: list[PhaseTimes] = []
        self._beside = self.plan if isinstance(self.plan, PlanBeside) else None
        self._states: list[SimulatedState] | None = None
        try:
            schema = RUN_SCHEMA if self.plan.idle.cap_ns is None else COMPRESSED_RUN_SCHEMA
            self._spool = Spool(self.output.records, schema, {}, force=replay.force, public=True)
        except BaseException:
            self.output.abandon()
            raise
        beside = self._beside
        facts = _fitted_facts(self.plan.target)
        self._records = RunRecords(
            self._spool, Backgrounds(beside.backgrounds, beside.start_ns, beside.lead_ns) if beside else None,
            FittedReads(facts) if facts else None, any(pace.dependent for pace in self.plan.paces))
        self._planned: list[tuple[Lane, IoChecksum]] = []
        self._recorder = Recorder(replay.options.telemetry, self.plan.targets, self.output.path, replay.force)
        self._certificate = Certificate(any(not pace.saturating for pace in self.plan.paces))
        self._host_effect = self._new_host_effect()

    def issue(self) -> Outcome:
        with sigterm_as_interrupt():
            try:
                self._issue_on_drives()
                return self._finish()
            except KeyboardInterrupt:
                if not self._records.issued.ios:
                    raise
                with suppress(BlkreelError):  # what `recover` makes of it has all I/Os, also on a full disk
                    self._note()
                raise Interrupted("the replay was interrupted before its results were written",
                                  f"write them with: blkreel recover {self.output.path}") from None

    def _issue_on_drives(self) -> None:
        with ExitStack() as stack:
            try:
                claims = [claim for target in self.plan.targets if (claim := stack.enter_context(held(target)))]
                support = [stack.enter_context(write_support(claim, hinted=self._has_hints(drive),
                                                       passthrough=self.options.passthrough))
                           for drive, claim in zip(self.plan.drives, claims, strict=False)]
                compared = compared_blocks(self.plan, passthrough=self.options.passthrough)
                for drive, run_drive in zip(self.plan.drives, self._drives, strict=True):
                    self._prefill(drive, run_drive)
                for index, (blocks, claim) in enumerate(zip(compared, claims, strict=False)):
                    data = stack.enter_context(compare_data(blocks, claim, self.replay.progress))
                    support[index] = replace(support[index], compare_data=data)
            except BaseException:
                self._spool.discard()
                self.output.abandon()
                raise
            if self.replay.last_use:
                self.plan.forget_blocks()
            self._states = states_before(self._beside) if self._beside else None
            on_written = [state.about_to_write(drive.target, *drive.max_bytes, self.options.label)
                          for drive in self.plan.drives]
            try:
                self._issue(claims, support)
            except (BlkreelError, OSError, MemoryError) as error:
                failure = error if isinstance(error, BlkreelError) else limit_reached(error)
                if failure is None:
                    raise
                raise self._salvaged(failure) from error
            except KeyboardInterrupt:
                if not self._records.issued.ios:
                    self._leave_nothing()
                raise
            if self._totals.get("stopped") == INTERRUPTED and not self._records.issued.ios:
                self._leave_nothing()
                raise Interrupted("the replay was interrupted before its first I/O", "run the same command again")
            for index, set_written in enumerate(on_written):
                totals = self._records.of_target(index)
                set_written(totals.changed_bytes, self.plan.drives[index].discarded_bytes(totals.ios, totals.bytes))

    def _finish(self) -> Outcome:
        self._complete_inputs()
        partial = self._totals.get("stopped")
        if not partial and isinstance(self.plan.foreground, TracePlan):
            measured = self.plan.foreground, self._source["sha256"], self.replay.progress, self.options.engine
            self._zero_latency, self._compute_curve = zero_latency(*measured), compute_curve(*measured)
        if not partial and self._beside and self._states:
            self._phases = other_phases(self._beside, self._states, self.options.seed, self.options.payload,
                                        self.replay.progress, self.options.engine, foreground_of)
        account = self._with_latency_log(self.account(partial))
        if account["baseline"] is None:
            remove_directory(self.output.path / BASELINE, LAYOUT)  # of a run that this one replaces
        try:
            self._spool.finish({**self._metadata(), "run": account})
        except BlkreelError as error:
            error.remedy = f"{error.remedy}; then finish it with: blkreel recover {self.output.path}"
            raise
        return Outcome(account, bool(self._totals.get("asked_to_stop")))

    def _with_latency_log(self, account: RunAccount) -> RunAccount:
        """Of a run that is not valid, store the drives' own log of their slowest commands: it may tell why."""
        path = self.output.path / LATENCY_LOG
        logs = self._recorder.latency_logs() if account["verdict"]["level"] != "valid" else {}
        try:
            if logs:
                write_json(path, {"version": 1, "drives": logs})
            else:
                unlink(path)  # of a run that this one replaces
        except (OSError, BlkreelError) as error:
            logs = {}
            if account["telemetry"]:
                account["telemetry"]["missing"]["latency_log"] = f"{path} was not written: {error}"
        return {**account, "latency_log": LATENCY_LOG if logs else None}

    def _prefill(self, drive: DrivePlan, run_drive: RunDrive) -> None:
        if drive.zones:
            # Write pointers move with each replay, whatever the remembered state of the drive is.
            self._reset_zones(drive.target, drive.zones)
            if len(drive.prefill):
                self._write_blocks(drive.prefill, drive.target)
        elif len(drive.prefill) and not run_drive.is_prepared(lambda: self.plan.prepared_as(drive)):
            self._write_blocks(drive.prefill, drive.target)
        for blocks in drive.background_prefill:
            if len(blocks):
                self._write_blocks(blocks, drive.target)

    def _reset_zones(self, target: Target, plan: ZonePlan) -> None:
        if len(plan.resets):
            discarded_bytes = len(plan.resets) * plan.zones.zone_bytes
            set_written = state.about_to_write(target, 0, discarded_bytes, self.options.label)
            issue_untimed(target, [plan_batch(plan.resets, 0, OPS["zone_reset"])], step="resetting zones",
                          total_bytes=0, depth=PREFILL_DEPTH, seed=self.options.seed, payload=self.options.payload,
                          progress=self.replay.progress, engine=self.options.engine)
            set_written(0, discarded_bytes)

    def _write_blocks(self, extents: MappedBlocks, target: Target) -> None:
        set_written = state.about_to_write(target, extents.bytes, 0, self.options.label)
        with simulated_state.written_long_before(target.simulated):
            untimed = issue_untimed(target, ranges(extents, "write", PREFILL_BYTES), step="writing blocks to be read",
                                    total_bytes=extents.bytes, depth=PREFILL_DEPTH, seed=self.options.seed + 1,
                                    payload=self.options.payload, progress=self.replay.progress,
                                    engine=self.options.engine)
        set_written(untimed.written_bytes, 0)

    def _has_hints(self, drive: DrivePlan) -> bool:
        """Whether the trace or a background writes to it with hints."""
        surveys = [part.survey for plan in self.plan.trace_plans for part in plan.drives if part.target == drive.target]
        return not self.options.passthrough and any(
            not survey.write_flags.keys().isdisjoint(HINTS) for survey in surveys)

    def _issue(self, claims: list[Claim], support: list[WriteSupport]) -> None:
        plan = self.plan
        total = max(plan.duration_ns / 1e9, 1e-3) if plan.duration_ns is not None else plan.total_ios
        if any(pace.dependent for pace in plan.paces):
            self._turnaround_ns = turnaround_ns(plan.targets, self.options.passthrough, self.options.engine)
        lanes = [self._checksummed(lane) for lane in plan.lanes(self._planned_counts)]
        # Real-time priority only for a plan with deadlines: at a fixed depth the thread never sleeps, and would starve
        # the kernel's threads on its CPU.
        options = EngineOptions(**engine_options(plan.targets), claims=claims, write_support=support,
                                seed=self.options.seed,
                                realtime=not any(pace.saturating for pace in plan.paces), stop_ns=plan.stop_ns,
                                may_write=[drive.changes_drive for drive in plan.drives],
                                turnaround_ns=self._turnaround_ns or 0,
                                payload=self.options.payload, polled=self.options.polled,
                                passthrough=self.options.passthrough)
        noted_at, elapsed_ns = time.monotonic(), 0
        self._note()
        with self.replay.progress("replaying", total) as task:
            def on_note(note: EngineNote) -> None:
                nonlocal elapsed_ns
                if self._start_ns is None and note.get("start_monotonic_ns"):
                    self._certificate.begin()
                self._start_ns = note.get("start_monotonic_ns") or self._start_ns
                self._recorder.epoch(self._start_ns)
                elapsed_ns = note.get("elapsed_ns", 0)  # it advances while an idle trace has no rows
                task.take_telemetry(self._recorder.latest)
                task.take_note(note)
                if "waiting" not in note:
                    self._update(task, elapsed_ns)

            def on_rows(rows: Batch) -> None:
                nonlocal noted_at
                self._records.add(rows)
                foreground, _ = foreground_of(rows)
                self._certificate.take(foreground)
                self._host_effect.take(foreground)
                if all(drive.is_counted for drive in self._drives):
                    self._recorder.take(rows)
                task.take_rows(rows)
                if time.monotonic() - noted_at > _NOTE_EVERY_S:
                    self._note()
                    noted_at = time.monotonic()
                self._update(task, elapsed_ns)

            with self._recorder:
                for drive in self._drives:
                    drive.begin()
                self._certificate.begin()
                self._totals = self.options.engine(options, lanes, on_rows, on_note)
                self._certificate.end(dict(self._totals))
                self._host_effect.end(dict(self._totals))
                for drive in self._drives:
                    drive.end()
            for target in plan.targets:
                if target.block is not None and not target.block.exists():
                    raise BlkreelError(f"{target.path} is gone", "read the kernel log: dmesg")
        for index, drive in enumerate(self._drives):
            drive.count_external(self._records.of_target(index))

    def _update(self, task: ProgressTask, elapsed_ns: int) -> None:
        records = self._records
        rate = records.completed_ops * 1e9 / max(records.span.wall_ns, 1)
        late = f", at most {format_ns(records.lateness.max_ns)} late" if records.lateness.max_ns else ""
        done = (records.completed_ops if self.plan.duration_ns is None else
                max(records.last_submit_ns, elapsed_ns) / 1e9)
        task.update(done, f"{format_count(round(rate))} IOPS{late}")

    def _note(self) -> None:
        """Store the account as of now, for `recover` after a kill."""
        self._spool.note({**self._metadata(), "run": self.account(_KILLED)})

    def _checksummed(self, lane: Lane) -> Lane:
        """The lane, with a checksum of its batches to verify in the end that all of them were issued."""
        # A lane with dependencies is not issued in the order of its plan, so that it has no prefix.
        is_dependent = any(pace.dependent for pace in self.plan.paces)
        is_open = self.plan.is_open and (lane.background or not is_dependent)
        planned = PrefixChecksum(_READ_AHEAD_ROWS) if is_open else IoChecksum()
        self._planned.append((lane, planned))
        batches = planned.sum_up(lane.batches)
        return replace(lane, batches=batches if lane.background else self._certificate.watch(batches))

    def _salvaged(self, error: BlkreelError) -> BlkreelError:
        """Keep the records written before an error, and add their place to its remedy."""
        if not self._records.issued.ios:
            self._leave_nothing()
            return error
        self._complete_inputs()
        try:
            self._spool.finish({**self._metadata(), "run": self._with_latency_log(self.account(error.message))})
        except BlkreelError:
            hint = f"then finish the recorded part with: blkreel recover {self.output.path}"
        else:
            hint = f"the recorded part is in {self.output.path}, marked as partial"
        error.remedy = f"{error.remedy}; {hint}" if error.remedy else hint
        return error

    def _leave_nothing(self) -> None:
        """Remove all files of a run without I/O."""
        self._spool.discard()
        self._recorder.discard()
        self.output.abandon()

    def _complete_inputs(self) -> None:
        lead_ns = self._beside.lead_ns if self._beside else 0
        self._recorder.finish(dict(self._totals), self._records.span.wall_ns, lead_ns)
        # After the run: the checksum of a long trace takes seconds.
        self._source["sha256"] = self.plan.source_sha256()

    def account(self, partial: str | None) -> RunAccount:
        """The account of the run as of now. partial: why it is not complete, None if it is."""
        is_final = partial != _KILLED
        plan, records, totals = self.plan, self._records, self._totals
        first = self._drives[0]
        planned = self._planned_checksum()
        account: RunAccount = {
            "label": self.options.label,
            "simulated": any(target.is_simulated for target in plan.targets),
            "drive": first.describe(),
            "drives": [drive.account() for drive in self._drives] if len(self._drives) > 1 else None,
            "source": self._source,
            "pace": {**plan.pace_account(self._planned_counts), **self._planned_counts.by_clock(records.span.late_end),
                     "turnaround_ns": self._turnaround_ns},
            "without": list(plan.without),
            "idle": plan.idle_account(),
            "map": first.map(),
            "state": first.state_account(),
            "prefill": self._prefilled(),
            "payload": self._payload(),
            "polled": self.options.polled,
            "passthrough": self.options.passthrough,
            "unwritten_bytes": sum(drive.unwritten_bytes for drive in self._drives),
            "planned_ops": self._planned_ops(planned),
            **records.account(),
            "as_planned": partial is None and records.issued == planned,
            "altered": self._altered(),
            "write_flags": self._write_flags(),
            "dropped": totals.get("dropped") or {},
            "compares_unequal": totals.get("compares_unequal", 0),
            "hazards": totals.get("hazard_ops", 0),
            "left_out": sum(drive.survey.left_out * drive.mapping.copies for drive in plan.drives),
            "plan_ns": plan.duration_ns,
            "baseline": self._baseline_account(),
            "background": records.backgrounds.account(is_final=is_final) if records.backgrounds else None,
            "fitted": records.fitted.account() if records.fitted else None,
            "other_phases": self._phases or None,
            "zero_latency": self._zero_latency,
            "compute_curve": self._compute_curve,
            "underruns": totals.get("underruns", 0),
            "record_stalls": totals.get("record_stalls", 0),
            "certificate": self._certificate.account(),
            "host_effect": self._host_effect.account(
                records.span.wall_ns, self._zero_latency["load_time_ns"] if self._zero_latency else None),
            "engine": {name: totals.get(name) for name in _ENGINE_TOTALS},
            "foreign_ios": sum_or_none(drive.external_ios for drive in self._drives),
            "arrays": [use for drive in self._drives for use in drive.arrays],
            "emulated": [use for drive in self._drives for use in drive.emulated],
            "page_cache": any(uses_page_cache(target) for target in plan.targets),
            "telemetry": self._recorder.account(),
            "partial": partial,
            "started_at": self._started_at,
            "environment": self._environment,
            "seed": self.options.seed,
        }
        account["certificate"] = certified(account)
        return {**account, "verdict": judge(account), "latency_log": None}

    def _baseline_account(self) -> dict[str, Any] | None:
        is_dependent = any(pace.dependent for pace in self.plan.paces)
        load_time_ns = self._planned_counts.load_time_ns(self._records.span) if self._beside else None
        return self.replay.baseline and baseline_account(self.replay.baseline, self._records.reads.account(),
                                                         is_dependent, load_time_ns, self._phases)

    def _new_host_effect(self) -> HostEffect:
        paces = self.plan.paces
        return HostEffect(self.options.effect_limits, dependent=any(pace.dependent for pace in paces),
                          open_loop=any(not pace.saturating and not pace.dependent for pace in paces),
                          saturating=any(pace.saturating for pace in paces),
                          clocked=not any(target.simulated and target.simulated.is_virtual
                                          for target in self.plan.targets))

    def _planned_checksum(self) -> IoChecksum:
        """Checksum of the I/Os that had to be issued; of an open plan those that the engine took before the cut-off.

        A lane that was not cut off has to be issued completely, so that its missing last rows are noticed.
        """
        if not self.plan.is_open:
            return sum((planned for _, planned in self._planned), IoChecksum())
        issued, cut_off = self._totals.get("lane_issued"), self._totals.get("time_limit")
        if issued is None:
            return self._records.issued
        return sum((planned.of_first(count if cut_off or lane.background else sys.maxsize)
                    for (lane, planned), count in zip(self._planned, issued, strict=True)), IoChecksum())

    def _planned_ops(self, planned: IoChecksum) -> int:
        """Of the foreground; of an open plan the I/Os that the engine took before the cut-off."""
        plan = self.plan
        return planned.ios if plan.is_open and plan.foreground is plan else plan.foreground.total_ios

    def _payload(self) -> dict[str, int] | None:
        """Kind of data written. buffers_full_ops: writes that had to wait because writes in flight owned all data."""
        if not self.plan.writes:
            return None
        return {**self.options.payload.account(), "buffers_full_ops": self._totals.get("buffers_full_ops", 0)}

    def _altered(self) -> dict[str, int]:
        altered = dict(self._totals.get("altered") or {})
        rounded = sum(drive.survey.rounded * drive.mapping.copies for drive in self.plan.drives)
        if rounded:
            altered["grown to whole blocks"] = rounded
        return altered

    def _write_flags(self) -> dict[str, dict[str, int]]:
        of_trace: Counter[str] = Counter()
        for drive in self.plan.drives:
            of_trace.update({name: count * drive.mapping.copies for name, count in drive.survey.write_flags.items()})
        return {name: {"trace_bytes": count, "issued_bytes": self._records.write_flags.get(name, 0)}
                for name, count in of_trace.items()}

    def _prefilled(self) -> dict[str, Any] | None:
        """Blocks written before the run. by_state: if the drive's state `trace` had written them."""
        extents = [drive.prefill for drive in self.plan.drives]
        if not any(len(blocks) for blocks in extents):
            return None
        by_state = all(drive.was_prepared for drive in self._drives)
        return {"extents": sum(len(blocks) for blocks in extents), "bytes": sum(blocks.bytes for blocks in extents),
                **({"by_state": True} if by_state else {})}

    def _metadata(self) -> dict[str, Any]:
        """Metadata that a run has in common with a trace."""
        totals = self._totals
        pairs = [(totals.get("start_monotonic_ns"), totals.get("start_realtime_ns")),
                 (time.monotonic_ns(), time.time_ns())]
        return {
            "writer": f"blkreel {self._environment['blkreel']}", "source_format": "blkreel:replay",
            "source_sha256": self._source["sha256"], "capture_layer": "replay", "clock": "monotonic",
            "epoch_ns": totals.get("start_monotonic_ns", self._start_ns),
            "clock_pairs": [{"monotonic_ns": monotonic_ns, "realtime_ns": realtime_ns}
                            for monotonic_ns, realtime_ns in pairs if monotonic_ns is not None],
            "kernel": self._environment["kernel"], "cpu_count": self._environment["cpu_count"],
            "devices": [drive.describe() for drive in self._drives], "threads": self.plan.source_threads,
            "lost": {"total": 0, "per_cpu": {}, "intervals": []},
            "unmatched": 0, "in_flight_at_start": 0,
            "in_flight_at_end": self._records.unfinished_ops,
        }
