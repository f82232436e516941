"""A replay from a plan to a run: writes what the trace will read, issues the plan, accounts for it."""

import hashlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from blkreel.traces.device import describe
from blkreel.traces.errors import BlkreelError
from blkreel.traces.schema import RUN_SCHEMA
from blkreel.traces.shipped import called
from blkreel.traces.spool import Spool
from blkreel.traces.units import format_count, format_ns

from . import drive_state, foreign
from .certificate import Certificate
from .effect import carry_out
from .engine import EngineOptions, run_engine
from .environment import environment, uses_page_cache
from .plan import TracePlan
from .records import Fingerprint, RunRecords
from .run_directory import RunDirectory
from .safety import held, wait_released
from .streams import ranges
from .termination import terminated_like_interrupted
from .verdict import judge

_PREFILL_BYTES = 512 << 10
_PREFILL_DEPTH = 32
_NOTE_EVERY_S = 2.0
# How the engine worked, of its own totals; the rest of them is told by the records.
_ENGINE_TOTALS = ("cpu", "realtime", "memory_locked", "direct", "split_ops", "max_outstanding", "involuntary_switches",
                  "features")
_DIED = "the replay died before its end"


@dataclass
class Replay:
    """Carries one plan out. The target was found safe, and the output checked, before run() is called.

    progress(step, total) gives a context manager whose task has update(done, detail).
    """

    plan: TracePlan
    output: RunDirectory
    label: str
    seed: int
    progress: object
    force: bool = False
    engine: object = run_engine

    def run(self) -> dict:
        """The account of the run, which is the metadata key `run` of its records.

        An interruption ends with an account that says so; an error leaves nothing under the final name.
        """
        plan, target = self.plan, self.plan.target
        self._source = self._describe_source()
        self._environment = environment(target)
        self._state = drive_state.load(target)
        self._uncovered = not self._state.covers(plan.unwritten.limit_bytes)
        self._end, self._foreign, self._start_ns = {}, None, None
        self.output.create()
        try:
            spool = Spool(self.output.records, RUN_SCHEMA, {}, force=self.force)
        except BaseException:
            self.output.abandon()
            raise
        self._records, self._planned = RunRecords(spool), Fingerprint()
        self._certificate = Certificate(plan.pace.timed)
        with held(target), terminated_like_interrupted():
            try:
                self._prefill()
            except BaseException:
                spool.discard()
                self.output.abandon()
                raise
            with drive_state.writing(target, plan.changed_bytes - plan.discarded_bytes, plan.discarded_bytes) as wrote:
                try:
                    self._issue(spool)
                    wrote(self._records.changed_bytes, self._records.bytes["discard"])
                except BlkreelError as error:
                    raise self._salvaged(spool, error) from error
        account = self.account(self._partial())
        try:
            spool.finish({**self._metadata(), "run": account})
        except BlkreelError as error:
            error.remedy = f"{error.remedy}; then finish it with: blkreel recover {self.output.records}"
            raise
        return account

    def _prefill(self) -> None:
        extents, target = self.plan.prefill, self.plan.target
        if not len(extents):
            return
        with drive_state.writing(target, extents.bytes, 0):
            carry_out(target, ranges(extents, "write", _PREFILL_BYTES), what="writing what will be read",
                      total_bytes=extents.bytes, depth=_PREFILL_DEPTH, seed=self.seed + 1, progress=self.progress,
                      engine=self.engine)

    def _issue(self, spool) -> None:
        plan = self.plan
        timed = plan.pace.timed
        total = max(plan.duration_ns / 1e9, 1e-3) if timed else plan.total_ios
        # Ahead of everything else on its processor, but only where there are deadlines to keep: at a fixed
        # depth the thread never rests, and would starve the kernel's own threads there.
        options = EngineOptions(target=plan.target.path, depth=plan.pace.depth, seed=self.seed, realtime=timed,
                                may_write=plan.survey.changes_the_drive())
        noted_at = time.monotonic()
        spool.note({**self._metadata(), "run": self.account(_DIED)})
        with self.progress("replaying", total) as task:
            def take(rows):
                nonlocal noted_at
                records = self._records
                records.take(rows)
                self._certificate.take(rows)
                if time.monotonic() - noted_at > _NOTE_EVERY_S:
                    # What a killed replay leaves behind then tells how far it came.
                    spool.note({**self._metadata(), "run": self.account(_DIED)})
                    noted_at = time.monotonic()
                rate = records.completed_ops * 1e9 / max(records.wall_ns, 1)
                late = f", at most {format_ns(records.lateness.max_ns)} late" if timed else ""
                task.update(records.last_submit_ns / 1e9 if timed else records.completed_ops,
                            f"{format_count(round(rate))} IOPS{late}")

            before = foreign.count_of(plan.target)
            self._certificate.begin()
            batches = self._certificate.watch(self._planned.watch(plan.batches()))
            self._end = self.engine(options, batches, take, self._take_note)
            self._certificate.end(self._end)
            after = foreign.count_of(plan.target)
            self._wait_released()
        ios, moved = self._records.ios, self._records.bytes
        self._foreign = foreign.foreign_ios(
            before, after, read_ios=ios["read"], read_bytes=moved["read"],
            write_ios=ios["write"] + ios["write_zeroes"], write_bytes=moved["write"] + moved["write_zeroes"])

    def _take_note(self, note: dict) -> None:
        self._start_ns = note.get("start_monotonic_ns") or self._start_ns

    def _wait_released(self) -> None:
        try:
            wait_released(self.plan.target)
        except OSError as error:
            raise BlkreelError(f"{self.plan.target.path} is gone: {error.strerror}",
                               "see what the kernel says of it: dmesg") from error

    def _salvaged(self, spool, error: BlkreelError) -> BlkreelError:
        """Keep what was recorded before an error, and say where it is."""
        if not self._records.issued.ios:
            spool.discard()
            self.output.abandon()
            return error
        records = self.output.records
        try:
            spool.finish({**self._metadata(), "run": self.account(error.message)})
        except BlkreelError:
            kept = f"what was recorded can be finished after that: blkreel recover {records}"
        else:
            kept = f"what was recorded until then is in {self.output.path}, marked as partial"
        error.remedy = f"{error.remedy}; {kept}" if error.remedy else kept
        return error

    def _partial(self) -> str | None:
        """Why the engine ended before its plan did."""
        return self._end.get("stopped")

    def account(self, partial: str | None) -> dict:
        """All that the run tells about itself, as of now."""
        plan, records, end = self.plan, self._records, self._end
        account = {
            "label": self.label,
            "drive": self._drive(),
            "source": self._source,
            "pace": plan.pace.account(),
            "idle": {"name": plan.idle.name, "cap_ns": plan.idle.cap_ns, "removed_ns": plan.survey.removed_ns},
            "map": {"name": plan.mapping.name},
            "state": self._state.account(),
            "prefill": {"extents": len(plan.prefill), "bytes": plan.prefill.bytes} if len(plan.prefill) else None,
            "unwritten_bytes": plan.unwritten.bytes if self._uncovered else 0,
            "planned_ops": plan.total_ios,
            "issued_ops": records.issued.ios,
            "completed_ops": records.completed_ops,
            "moved_bytes": records.bytes["read"] + records.bytes["write"],
            "error_ops": records.error_ops,
            "first_error": records.first_error,
            "as_planned": partial is None and records.issued == self._planned,
            "altered": self._altered(),
            "dropped": end.get("dropped") or {},
            "left_out": plan.survey.left_out,
            "plan_ns": plan.duration_ns,
            "wall_ns": records.wall_ns,
            "drift_ns": records.lateness.drift_ns(),
            "lateness": records.lateness.account(),
            "underruns": end.get("underruns", 0),
            "record_stalls": end.get("record_stalls", 0),
            "certificate": self._certificate.account(),
            "engine": {name: end.get(name) for name in _ENGINE_TOTALS},
            "foreign_ios": self._foreign,
            "page_cache": uses_page_cache(plan.target),
            "partial": partial,
            "started_at": self._started_at,
            "environment": self._environment,
            "seed": self.seed,
        }
        return {**account, "verdict": judge(account)}

    def _altered(self) -> dict:
        altered = dict(self._end.get("altered") or {})
        if self.plan.survey.rounded:
            altered["grown to whole blocks"] = self.plan.survey.rounded
        return altered

    def _drive(self) -> dict:
        entry = describe(self.plan.target.drive)
        if self.plan.target.partition:
            entry |= {"partition": self.plan.target.partition, "partition_size_bytes": self.plan.target.size_bytes}
        return entry

    def _describe_source(self) -> dict:
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        trace, survey = self.plan.trace, self.plan.survey
        with open(trace.path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"path": called(trace.path), "sha256": digest, "rows": trace.rows, "device": survey.device,
                "duration_ns": survey.last_submit_ns - survey.first_submit_ns, "unfinished": survey.unfinished,
                "lost": trace.metadata.get("lost"), "devices": trace.metadata.get("devices"),
                "command": trace.metadata.get("command"),
                "programs": sorted({thread.get("comm") for thread in (trace.metadata.get("threads") or {}).values()
                                    if thread.get("comm")}),
                "capture_layer": trace.metadata.get("capture_layer"),
                "source_format": trace.metadata.get("source_format")}

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
            "devices": [self._drive()], "threads": {}, "lost": {"total": 0, "per_cpu": {}, "intervals": []},
            "unmatched": 0, "in_flight_at_start": 0,
            "in_flight_at_end": self._records.issued.ios - self._records.completed_ops,
        }

