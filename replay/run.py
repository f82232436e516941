"""A replay from a plan to a run: writes what the trace will read, issues the plan, accounts for it."""

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from blkreel.traces.errors import BlkreelError
from blkreel.traces.schema import RUN_SCHEMA
from blkreel.traces.spool import Spool
from blkreel.traces.units import format_count, format_ns

from . import drive_state
from .certificate import Certificate, certified
from .effect import carry_out
from .engine import BLOCK_ROWS, PLAN_BLOCKS_AHEAD, EngineOptions, run_engine
from .environment import environment, uses_page_cache
from .onlooker import watchers
from .payload import Payload
from .plan import Plan
from .records import Fingerprint, OpenFingerprint, RunRecords
from .run_directory import RunDirectory
from .run_drive import RunDrive
from .safety import held, wait_released
from .states import PREFILL_BYTES, PREFILL_DEPTH
from .streams import ranges
from .target import engine_options
from .telemetry.options import TelemetryOptions
from .telemetry.recorder import Recorder
from .termination import terminated_like_interrupted
from .verdict import judge

_NOTE_EVERY_S = 2.0
# How the engine worked, of its own totals; the rest of them is told by the records.
_ENGINE_TOTALS = ("cpu", "realtime", "memory_locked", "direct", "split_ops", "max_outstanding", "involuntary_switches",
                  "realtime_given_up", "features", "lanes", "window_full")
# What the helper and its pipe hold of a plan at most, and a batch that is being made.
_READ_AHEAD_ROWS = (PLAN_BLOCKS_AHEAD + 2) * BLOCK_ROWS
_DIED = "the replay died before its end"


@dataclass
class Replay:
    """Carries one plan out. The target was found safe, and the output checked, before run() is called.

    progress(step, total) gives a context manager whose task has update(done, detail). last_use: whether the plan is
    not needed again, so that it may let go of what it has prepared for. about: what else the run tells of where its
    I/Os come from.
    """

    plan: Plan
    output: RunDirectory
    label: str
    seed: int
    progress: object
    force: bool = False
    payload: Payload = Payload()
    polled: bool = False
    engine: object = run_engine
    last_use: bool = False
    about: dict = field(default_factory=dict)
    telemetry: TelemetryOptions = TelemetryOptions()

    def run(self) -> dict:
        """The account of the run, which is the metadata key `run` of its records.

        An interruption ends with an account that says so; an error leaves nothing under the final name.
        """
        self._source = self._describe_source()
        self._environment = environment(self.plan.target)
        self._drives = [RunDrive(drive) for drive in self.plan.drives]
        self._end, self._start_ns = {}, None
        self.output.create()
        try:
            spool = Spool(self.output.records, RUN_SCHEMA, {}, force=self.force)
        except BaseException:
            self.output.abandon()
            raise
        self._records, self._planned = RunRecords(spool), []
        self._recorder = Recorder(self.telemetry, self.plan.targets, self.output.path, self.force)
        self._certificate = Certificate(any(not pace.saturating for pace in self.plan.paces))
        with ExitStack() as stack:
            for target in self.plan.targets:
                stack.enter_context(held(target))
            stack.enter_context(terminated_like_interrupted())
            try:
                for drive, run_drive in zip(self.plan.drives, self._drives, strict=True):
                    self._prefill(drive, run_drive)
            except BaseException:
                spool.discard()
                self.output.abandon()
                raise
            if self.last_use:
                self.plan.forget_blocks()
            wrote = [drive_state.about_to_write(drive.target, *drive.most_bytes, self.label)
                     for drive in self.plan.drives]
            try:
                self._issue(spool)
            except BlkreelError as error:
                raise self._salvaged(spool, error) from error
            except KeyboardInterrupt:
                if not self._records.issued.ios:
                    self._leave_nothing(spool)
                raise
            for index, tell in enumerate(wrote):
                moved = self._records.moved(index)
                tell(moved.changed_bytes, moved.bytes["discard"])
        self._recorder.finish(self._end, self._records.wall_ns)
        self._name_source()
        account = self.account(self._partial())
        try:
            spool.finish({**self._metadata(), "run": account})
        except BlkreelError as error:
            error.remedy = f"{error.remedy}; then finish it with: blkreel recover {self.output.records}"
            raise
        return account

    def _prefill(self, drive, run_drive) -> None:
        extents, target = drive.prefill, drive.target
        if not len(extents):
            return
        if run_drive.prepared_for(lambda: self.plan.prepared_as(drive)):
            return
        tell = drive_state.about_to_write(target, extents.bytes, 0, self.label)
        effect = carry_out(target, ranges(extents, "write", PREFILL_BYTES), what="writing what will be read",
                           total_bytes=extents.bytes, depth=PREFILL_DEPTH, seed=self.seed + 1, payload=self.payload,
                           progress=self.progress, engine=self.engine)
        tell(effect.written_bytes, 0)

    def _issue(self, spool) -> None:
        plan = self.plan
        timed = plan.duration_ns is not None
        total = max(plan.duration_ns / 1e9, 1e-3) if timed else plan.total_ios
        lanes = [self._watched(lane) for lane in plan.lanes()]
        # Ahead of everything else on its processor, but only where there are deadlines to keep: at a fixed
        # depth the thread never rests, and would starve the kernel's own threads there.
        options = EngineOptions(**engine_options(plan.targets), depth=lanes[0].depth, seed=self.seed,
                                realtime=not any(pace.saturating for pace in plan.paces), stop_ns=plan.stop_ns,
                                may_write=plan.changes_a_drive, payload=self.payload, polled=self.polled)
        noted_at, elapsed_ns = time.monotonic(), 0
        spool.note({**self._metadata(), "run": self.account(_DIED)})
        with self.progress("replaying", total) as task:
            watch_rows, watch_note, watch_telemetry = watchers(task)

            def tell_progress():
                records = self._records
                rate = records.completed_ops * 1e9 / max(records.wall_ns, 1)
                late = f", at most {format_ns(records.lateness.max_ns)} late" if records.lateness.max_ns else ""
                task.update(max(records.last_submit_ns, elapsed_ns) / 1e9 if timed else records.completed_ops,
                            f"{format_count(round(rate))} IOPS{late}")

            def note_taken(note):
                nonlocal elapsed_ns
                self._take_note(note)
                # Of a trace that idles no row comes, and yet it goes on.
                elapsed_ns = note.get("elapsed_ns", 0)
                watch_telemetry(self._recorder.latest)
                watch_note(note)
                tell_progress()

            def take(rows):
                nonlocal noted_at
                records = self._records
                records.take(rows)
                self._certificate.take(rows)
                self._recorder.take(rows)
                watch_rows(rows)
                if time.monotonic() - noted_at > _NOTE_EVERY_S:
                    # What a killed replay leaves behind then tells how far it came.
                    spool.note({**self._metadata(), "run": self.account(_DIED)})
                    noted_at = time.monotonic()
                tell_progress()

            with self._recorder:
                for drive in self._drives:
                    drive.begin()
                self._certificate.begin()
                self._end = self.engine(options, lanes if len(lanes) > 1 else lanes[0].batches, take, note_taken)
                self._certificate.end(self._end)
                for drive in self._drives:
                    drive.end()
            for target in plan.targets:
                _wait_released(target)
        for index, drive in enumerate(self._drives):
            drive.count_foreign(self._records.moved(index))

    def _watched(self, lane):
        """The lane, added up as it passes to tell in the end whether all of it was issued."""
        planned = OpenFingerprint(_READ_AHEAD_ROWS) if self.plan.is_open else Fingerprint()
        self._planned.append(planned)
        return replace(lane, batches=self._certificate.watch(planned.watch(lane.batches)))

    @property
    def asked_to_stop(self) -> bool:
        """Whether Ctrl-C came while it ran, be it too late to cut anything off."""
        return bool(self._end.get("asked_to_stop"))

    def _take_note(self, note: dict) -> None:
        self._start_ns = note.get("start_monotonic_ns") or self._start_ns
        self._recorder.epoch(self._start_ns)

    def _salvaged(self, spool, error: BlkreelError) -> BlkreelError:
        """Keep what was recorded before an error, and say where it is."""
        if not self._records.issued.ios:
            self._leave_nothing(spool)
            return error
        records = self.output.records
        self._recorder.finish(self._end, self._records.wall_ns)
        self._name_source()
        try:
            spool.finish({**self._metadata(), "run": self.account(error.message)})
        except BlkreelError:
            kept = f"what was recorded can be finished after that: blkreel recover {records}"
        else:
            kept = f"what was recorded until then is in {self.output.path}, marked as partial"
        error.remedy = f"{error.remedy}; {kept}" if error.remedy else kept
        return error

    def _leave_nothing(self, spool) -> None:
        """No I/O was issued: there is no run."""
        spool.discard()
        self._recorder.discard()
        self.output.abandon()

    def _partial(self) -> str | None:
        """Why the engine ended before its plan did."""
        return self._end.get("stopped")

    def account(self, partial: str | None) -> dict:
        """All that the run tells about itself, as of now."""
        plan, records, end = self.plan, self._records, self._end
        first = self._drives[0]
        planned = self._planned_set()
        account = {
            "label": self.label,
            "drive": first.describe(),
            "drives": [drive.account() for drive in self._drives] if len(self._drives) > 1 else None,
            "source": self._source,
            "pace": plan.pace_account(),
            "idle": {"name": plan.idle.name, "cap_ns": plan.idle.cap_ns, "removed_ns": plan.survey.removed_ns},
            "map": first.map(),
            "state": first.state_account(),
            "prefill": self._prefilled(),
            "payload": self._payload(),
            "unwritten_bytes": sum(drive.unwritten_bytes for drive in self._drives),
            "planned_ops": planned.ios if plan.is_open else plan.total_ios,
            "issued_ops": records.issued.ios,
            "completed_ops": records.completed_ops,
            "moved_bytes": records.bytes["read"] + records.bytes["write"],
            "error_ops": records.error_ops,
            "errors": dict(records.errors),
            "first_error": records.first_error,
            "as_planned": partial is None and records.issued == planned,
            "altered": self._altered(),
            "dropped": end.get("dropped") or {},
            "hazards": end.get("hazard_ops", 0),
            "left_out": sum(drive.survey.left_out * drive.mapping.copies for drive in plan.drives),
            "plan_ns": plan.duration_ns,
            "wall_ns": records.wall_ns,
            "own_wall_ns": records.own_wall_ns,
            "drift_ns": records.lateness.drift_ns(),
            "lateness": records.lateness.account(),
            "underruns": end.get("underruns", 0),
            "record_stalls": end.get("record_stalls", 0),
            "certificate": self._certificate.account(),
            "engine": {name: end.get(name) for name in _ENGINE_TOTALS},
            "foreign_ios": _sum_or_none(drive.foreign_ios for drive in self._drives),
            "page_cache": any(uses_page_cache(target) for target in plan.targets),
            "telemetry": self._recorder.account(),
            "partial": partial,
            "started_at": self._started_at,
            "environment": self._environment,
            "seed": self.seed,
        }
        account["certificate"] = certified(account)
        return {**account, "verdict": judge(account)}

    def _planned_set(self) -> Fingerprint:
        """What was to be issued; of an open plan, so much of each lane as the engine took before it was cut off.

        A lane that nothing cut off is to be issued whole: its last rows are missed where they lack.
        """
        if not self.plan.is_open:
            return sum(self._planned, Fingerprint())
        taken, cut_off = self._end.get("lane_issued"), self._end.get("time_limit")
        if taken is None:
            return self._records.issued
        return sum((lane.of_first(count if cut_off or stream.background else sys.maxsize)
                    for lane, stream, count in zip(self._planned, self.plan.streams, taken, strict=True)),
                   Fingerprint())

    def _payload(self) -> dict | None:
        """What was written. shared_ops: writes that began with so much outstanding that they may share their data."""
        if not self.plan.writes:
            return None
        return {**self.payload.account(), "shared_ops": self._end.get("shared_payload_ops", 0)}

    def _altered(self) -> dict:
        altered = dict(self._end.get("altered") or {})
        rounded = sum(drive.survey.rounded * drive.mapping.copies for drive in self.plan.drives)
        if rounded:
            altered["grown to whole blocks"] = rounded
        return altered

    def _prefilled(self) -> dict | None:
        extents = [drive.prefill for drive in self.plan.drives]
        if not any(len(one) for one in extents):
            return None
        earlier = all(drive.was_prepared for drive in self._drives)
        return {"extents": sum(len(one) for one in extents), "bytes": sum(one.bytes for one in extents),
                **({"by_state": True} if earlier else {})}

    def _describe_source(self) -> dict:
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        return {**self.plan.source(), **self.about}

    def _name_source(self) -> None:
        """After the run: a long trace takes longer to be summed than anybody waits for a start."""
        self._source["sha256"] = self.plan.source_sha256()

    def _metadata(self) -> dict:
        """What a run has in common with a trace."""
        end = self._end
        pairs = [(end.get("start_monotonic_ns"), end.get("start_realtime_ns")), (time.monotonic_ns(), time.time_ns())]
        return {
            "writer": f"blkreel {self._environment['blkreel']}", "source_format": "blkreel:replay",
            "source_sha256": self._source["sha256"], "capture_layer": "replay", "clock": "monotonic",
            "epoch_ns": end.get("start_monotonic_ns", self._start_ns),
            "clock_pairs": [{"monotonic_ns": ours, "realtime_ns": real} for ours, real in pairs if ours is not None],
            "kernel": self._environment["kernel"], "cpu_count": self._environment["cpu_count"],
            "devices": [drive.describe() for drive in self._drives], "threads": {},
            "lost": {"total": 0, "per_cpu": {}, "intervals": []},
            "unmatched": 0, "in_flight_at_start": 0,
            "in_flight_at_end": self._records.issued.ios - self._records.completed_ops,
        }


def _wait_released(target) -> None:
    try:
        wait_released(target)
    except OSError as error:
        raise BlkreelError(f"{target.path} is gone: {error.strerror}",
                           "see what the kernel says of it: dmesg") from error


def _sum_or_none(counts) -> int | None:
    """None where any of them is not known."""
    counts = list(counts)
    return None if None in counts else sum(counts)
