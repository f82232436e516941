"""Types of the metadata of traces and runs that readers rely on. A key may be missing; unknown keys are accepted.

The account of a run (Run) is read once, with defaults for what is missing.

At the end: what the source of a trace did not record (docs/import.md), and so what cannot be done with the trace.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Literal, NotRequired, Required, Self, TypedDict

from blkreel.common.binning import grouped
from blkreel.common.emulated import EmulatedUse
from blkreel.common.files.typed_document import OrEmpty, Unsigned, mismatch, record, record_type
from blkreel.common.units import counted
from blkreel.common.verdict import Verdict

# The times of a trace have 63 bits with those of its clock.
_LATEST_NS = (1 << 62) - 1
# From this step of the source's clock on, times are not repeated: gaps between I/Os are far shorter.
COARSE_CLOCK_NS = 100_000_000


class Device(TypedDict, total=False):
    name: str
    path: str
    kind: str
    size_bytes: int
    logical_block_bytes: int
    physical_block_bytes: int
    model: str
    firmware: str
    scheduler: str
    queue_depth: int
    read_ahead_bytes: int
    max_request_bytes: int
    rotational: bool
    write_cache: str
    fua: bool | None
    backing_file: str
    read_only: bool
    zoned: str
    zone_bytes: int
    transport: str
    io_max: dict[str, int]
    serial_hash: str
    layer: str


class VolumePart(TypedDict):
    """A device below a volume. offset_bytes: on it, where the part begins; None unless the volume is linear there."""

    name: str
    volume_offset_bytes: int
    length_bytes: int
    offset_bytes: int | None


class Volume(TypedDict):
    """label: its name in dm. kind: such as dm-crypt, md raid1, bcache."""

    name: str
    path: str
    label: str
    kind: str
    parts: list[VolumePart]


StorageLayer = Literal["device", "volume", "both"]


class PcieLink(TypedDict, total=False):
    """None where sysfs has no number. best_*: the most that drive and slot both support."""

    speed_gts: float | None
    width: float | None
    best_speed_gts: float | None
    best_width: float | None


class ArrayUse(TypedDict):
    """Of an array (md, dm-raid), at the start or the end of a run. action: what it copies between its drives for, such
    as resync; "" for nothing. missing_drives: how many it lacks."""

    name: str
    action: str
    missing_drives: int


class RunDrive(TypedDict, total=False):
    name: Required[str]
    model: str
    size_bytes: int
    serial_hash: str
    link: PcieLink | None


class Thread(TypedDict, total=False):
    comm: str
    pid: int
    process: str
    names: list[str]


class LostInterval(TypedDict):
    cpu: NotRequired[int]
    first_ns: int
    last_ns: int
    count: int


class Lost(TypedDict, total=False):
    """unit: "events" where an I/O has several of them, else I/Os. total: None if the source cannot count."""

    total: Required[int | None]
    per_cpu: dict[str, int]
    intervals: list[LostInterval]
    unit: str


class ClockPair(TypedDict):
    monotonic_ns: int
    realtime_ns: int


class File(TypedDict):
    filesystem: NotRequired[str | None]
    inode: Unsigned
    path: str


class Ring(TypedDict):
    dropped_rows: int


@record_type
class ReadAhead:
    ios: int | None = None
    read_ahead_ios: int | None = None
    blocked_unknown_ios: int | None = None
    in_time_ios: int | None = None
    used_by_mapping_ios: int | None = None


ComputeSpeed = float | Literal["none"] | None


@record_type
class Pace:
    """asleep_share: of the time between the I/Os of a thread, what it slept for anything but I/O; waiting_share: what
    it waited for a processor. by_clock_ios: the last I/Os of the run, if a sleep by the clock put them behind all that
    the trace has after them; they end by_clock_ns later than these. turnaround_ns: of the issuing thread, from the end
    of an I/O to the next one, by which completions count as earlier."""

    name: Literal["original", "scaled", "paced", "dependent", "depth", "asap"]
    depth: int | None = None
    factor: float | None = None
    compute: ComputeSpeed = None
    dependencies: str | None = None
    dependencies_inferred: float | None = None
    read_ahead: OrEmpty[ReadAhead] = ReadAhead()
    asleep_share: float | None = None
    waiting_share: float | None = None
    by_clock_ios: int | None = None
    by_clock_ns: int | None = None
    turnaround_ns: int | None = None
    streams: OrEmpty[dict[str, "Pace"]] = field(default_factory=dict)


@record_type
class ComputePoint:
    """compute: divisor of the computing time. load_time_ns: of workload I/O, without a background."""

    compute: float | Literal["none"]
    load_time_ns: int


@record_type
class ZeroLatency:
    """load_time_ns: from the first submit to the last completion of workload I/O, of all I/O if none is marked."""

    load_time_ns: int | None = None
    engine_version: str = ""


@record_type
class ReadTimes:
    """load_time_ns: from the first submit to the last completion of workload reads, of all reads if none is marked.

    wait_ns: time with at least one read outstanding, or due and held back by the drive's full queue.
    """

    load_time_ns: int | None = None
    wait_ns: int | None = None


@record_type
class SlowdownRatios:
    """Times of the reads beside the writes over their times in the baseline. load_time: only at dependent pace."""

    load_time: float | None
    read_wait: float | None


@record_type
class Baseline:
    """path: relative to the directory of the run. without: what it leaves out, writes or background.
    load_time_ns, read_wait_ns: as `reads` of the baseline's account; of a run with a background load_time_ns is that of
    all workload I/O. verdict: its level. reason: the text of its first reason, which is one of the worst; None without
    one. withheld: keys of the baseline's metrics that must not be used. phases: the slowdown (load time at dependent
    pace, else read wait) at each phase of the background that was simulated, with that of the run; `slowdown` is their
    geometric mean.
    """

    path: str
    without: list[str] = field(default_factory=list)
    load_time_ns: int | None = None
    read_wait_ns: int | None = None
    verdict: str = ""
    reason: str | None = None
    withheld: list[str] = field(default_factory=list)
    slowdown: SlowdownRatios
    phases: OrEmpty[list[float]] = field(default_factory=list)


class RunWrites(TypedDict, total=False):
    by: str
    at: str | None
    written_bytes: Required[int | None]
    discarded_bytes: Required[int | None]
    ended: Required[bool]


class DriveState(TypedDict, total=False):
    name: Required[str | None]
    prepared_at: str | None
    scale: float
    span_bytes: int | None
    payload: dict[str, int] | None
    written_since_bytes: int | None
    discarded_since_bytes: int | None
    since: list[RunWrites] | None
    notes: list[str] | None
    by_others_bytes: int | None
    spans: list[list[int]] | None
    rest_ns: int | None
    permuted: bool
    erased_by: str | None


@record_type
class Idle:
    name: str
    cap_ns: int | None
    removed_ns: int = 0


class Bursts(TypedDict, total=False):
    bytes: Required[int]
    every_ns: Required[int]
    count: int | None


class Stream(TypedDict, total=False):
    number: int
    name: str
    op: str
    access: str
    block_bytes: int
    start_bytes: int
    span_bytes: int
    volume_bytes: int | None
    read_percent: int | None
    bursts: Bursts | None


@record_type
class Source:
    path: str | None = None
    sha256: str | None = None
    rows: int | None = None
    device: int | None = None
    duration_ns: int | None = None
    least_computed_ns: int | None = None  # by threads of the command, from the first to the last I/O
    ios: int | None = None  # of the replayed devices; rows: of all devices
    unfinished: int | None = None  # of those
    streams: OrEmpty[list[Stream]] = field(default_factory=list)
    programs: OrEmpty[list[str]] = field(default_factory=list)
    title: str | None = None
    description: str | None = None
    command: list[str] | None = None
    devices: list[Device] | None = None
    lost: Lost | None = None
    commands_unseen: int | None = None
    uses_lost: int | None = None  # first uses of pages for which the ring of the capture was full
    emulated: OrEmpty[list[EmulatedUse]] = field(default_factory=list)  # of the emulated drives of the capture
    missing_ios: list[str] | None = None  # what the capture said of I/Os that the trace lacks, as text
    source_lacks: list[str] | None = None
    times_step_ns: int | None = None


class Lateness(TypedDict, total=False):
    """host_*: of the I/Os that no full queue delayed."""

    p50_ns: Required[int]
    p99_ns: Required[int]
    max_ns: Required[int]
    host_p99_ns: int
    host_max_ns: int
    queue_full_ops: Required[int]
    host_late_ops: int


@record_type
class Power:
    meter: str
    rail: str | None = None
    rate_hz: float | None = None
    average_w: float
    energy_j: float
    gaps: int
    covered_ns: int


@record_type
class Temperature:
    start: float
    max: float
    end: float


@record_type
class WriteCounters:
    """What the host and what the drive's media were written, by the drive's own counters, from the query before the run
    to the one after it. unit: "B" or "page", of unknown size. host_step, media_step: what a counter grows by at a time:
    the largest number that divides all its values."""

    unit: str
    host: int
    media: int
    host_step: int
    media_step: int


@record_type
class Smart:
    """changed: field -> difference, unless 0. critical_warning: all bits seen. took_ns: the longest query. writes: None
    without a counter of media writes, or if one went back; accounts of earlier versions do not have it."""

    changed: dict[str, float] = field(default_factory=dict)
    critical_warning: int = 0
    took_ns: int | None = None
    writes: WriteCounters | None = None


@record_type
class DriveTelemetry:
    temperature_c: Temperature | None = None
    throttled: int | None = None
    link: dict[str, float | None] | None = None
    smart: OrEmpty[Smart] = Smart()


@record_type
class Telemetry(DriveTelemetry):
    """The entries of DriveTelemetry are those of the first drive; drives: those of the others, by name."""

    power: Power | None = None
    drives: OrEmpty[dict[str, DriveTelemetry]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    meter_given: bool = False


@record_type
class Background:
    """stream: of its rows. spec: as given to --background; words: the same for a sentence. part: of the drive, in
    bytes.

    asked_bytes_s: mean rate of its writes, of its reads if it writes less than 1 % of what it reads. ios: completed in
    all, bytes: written in all, with the lead. sha256: of its trace.
    reached_bytes_s: bytes completed during the foreground / its time. reached_share: the bytes completed / those due
    since its start, the most over its last tenth; at most 1, None if none was due before. outstanding_share: share of
    the foreground's time with a write outstanding. phase: of its period at which it started; period_ns: None for an
    even rate.
    """

    stream: int = 0
    spec: str = ""
    words: str
    sha256: str | None = None
    part: dict[str, int] = field(default_factory=dict)
    asked_bytes_s: float
    ios: int = 0
    bytes: int = 0
    reached_bytes_s: float | None
    reached_share: float | None
    outstanding_share: float | None
    latency_p50_ns: int | None = None
    latency_p99_ns: int | None
    phase: float = 0
    period_ns: int | None = None
    lead_ns: int = 0


class MetricEffect(TypedDict, total=False):
    """As shares of the metric without the host's delays; above 0: they increased it. level: accepted, qualified or
    withheld."""

    effect: Required[float]
    schedule: float
    best_case: float
    level: str


@record_type
class HostEffect:
    """metrics: by key. headline: keys that the verdict on the run depends on. queue: the fitted model."""

    limits: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, MetricEffect] = field(default_factory=dict)
    headline: list[str] = field(default_factory=list)
    queue: dict[str, Any] | None = None


class Gaps(TypedDict):
    mean_ns: int
    p50_ns: int
    p99_ns: int


class ChangedGaps(TypedDict):
    p50_ns: int
    p99_ns: int
    max_ns: int


class Arrivals(TypedDict):
    """gaps: their number. ks: the Kolmogorov-Smirnov statistic of both distributions, mean_shift_ns: the area between
    them. changed: how much each gap differs from the planned."""

    gaps: NotRequired[int]
    planned: Gaps
    issued: Gaps
    ks: float
    mean_shift_ns: NotRequired[int]
    changed: ChangedGaps


class InFlight(TypedDict):
    mean: float
    p50: int
    p99: int
    max: int
    busy_ns: NotRequired[int]


class InFlightComparison(TypedDict):
    """ks: the distance of both distributions; None if one of them is unknown."""

    captured: InFlight | None
    replayed: InFlight | None
    ks: float | None


class StallCause(TypedDict, total=False):
    """Stalls of the issuing threads by one cause. late_ops: I/Os issued more than 100 us late because of it."""

    count: Required[int]
    total_ns: Required[int]
    longest_ns: Required[int]
    late_ops: Required[int]
    max_late_ns: int
    words: str | None


@record_type
class HostAccount:
    preemptions: int
    waited_ns: int | None = None
    steal_ns: int | None = None
    suspended_ns: int | None = None
    throttled: int | None = None
    counted_ns: int | None = None
    causes: dict[str, StallCause] = field(default_factory=dict)


@record_type
class Certificate:
    arrivals: Arrivals | None = None
    in_flight: InFlightComparison | None = None
    host: HostAccount | None = None


@record_type
class Environment:
    blkreel: str = ""
    kernel: str = ""
    cpu_model: str | None = None
    cpu_count: int | None = None
    link: PcieLink | None = None


class FittedAccount(TypedDict):
    """Files of earlier versions do not have all counts, and are of runs beside a background.

    read_bytes, other_bytes: of the trace's reads, and of those of sizes that were not fitted. reads, deeper_reads: of
    all reads, and of those among more in flight than twice as many as in the fitted runs. fitted_written_bytes,
    fitted_reads_in_flight: the most of a fitted run.
    """

    reads_from_bytes: int | None
    reads_to_bytes: int | None
    is_open: bool
    read_bytes: int
    other_bytes: int
    fitted_written_bytes: NotRequired[int | None]
    fitted_reads_in_flight: NotRequired[int | None]
    reads: NotRequired[int]
    deeper_reads: NotRequired[int]
    own_reads: NotRequired[int]
    own_writes: NotRequired[int]


@record_type
class Run:
    """The account of a run: the metadata key `run` of its records. Operations are counted in I/Os."""

    label: str = ""
    simulated: bool = False  # on simulated drives: the figures are those of their models
    drive: Device = field(default_factory=Device)  # the first
    drives: OrEmpty[list[RunDrive]] = field(default_factory=list)  # null with one drive
    source: Source = Source()
    pace: Pace = Pace(name="original")
    idle: Idle = Idle(name="unknown", cap_ns=None)
    map: dict[str, Any] = field(default_factory=dict)  # of the first drive
    without: OrEmpty[list[str]] = field(default_factory=list)  # kinds of I/Os of the trace that the run leaves out
    state: DriveState | None = None  # of the first drive, before the run
    prefill: dict[str, Any] | None = None
    reads: OrEmpty[ReadTimes] = ReadTimes()  # null without a read
    baseline: Baseline | None = None  # of a run without the writes, or without the background
    zero_latency: OrEmpty[ZeroLatency] = ZeroLatency()  # of a complete run with a dependent pace
    # Alone, on one simulated drive at dependent pace.
    compute_curve: OrEmpty[list[ComputePoint]] = field(default_factory=list)
    # Of the background, on simulated drives.
    other_phases: OrEmpty[list[dict[str, float]]] = field(default_factory=list)
    payload: OrEmpty[dict[str, int]] = field(default_factory=dict)  # null if the plan writes nothing
    polled: bool = False  # completions were polled for
    passthrough: bool = False  # I/Os were NVMe commands, without the block layer
    unwritten_bytes: int = 0
    planned_ops: int | None = None
    issued_ops: int | None = None
    completed_ops: int | None = None
    moved_bytes: int | None = None
    written_bytes: int | None = None  # of those; accounts of earlier versions do not have it
    error_ops: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # by kind: `write EIO`
    first_error: str | None = None
    as_planned: bool = False  # complete, and the I/Os issued are those of the plan
    altered: dict[str, int] = field(default_factory=dict)
    # trace_bytes and issued_bytes of writes with each of WRITE_FLAGS.
    write_flags: dict[str, dict[str, int]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    # Of compare commands: issued, compared, and those that found other data than was read before the run.
    compares: int = 0
    compared_bytes: int = 0
    compares_unequal: int = 0
    hazards: int = 0
    left_out: int = 0
    plan_ns: int | None = None
    wall_ns: int | None = None
    own_wall_ns: int | None = None  # of workload I/O
    lateness: Lateness | None = None
    background: OrEmpty[list[Background]] = field(default_factory=list)
    fitted: FittedAccount | None = None  # of a run on the file of a fitted drive
    drift_ns: int | None = None
    underruns: int | None = None
    record_stalls: int | None = None
    certificate: OrEmpty[Certificate] = Certificate()
    host_effect: OrEmpty[HostEffect] = HostEffect()  # null of a killed run and on a virtual clock
    engine: dict[str, Any] = field(default_factory=dict)
    foreign_ios: int | None = None  # external I/O
    arrays: OrEmpty[list[ArrayUse]] = field(default_factory=list)  # that were not idle and complete
    page_cache: bool = False
    emulated: OrEmpty[list[EmulatedUse]] = field(default_factory=list)  # of the drives that are emulated
    telemetry: OrEmpty[Telemetry] = Telemetry()
    latency_log: str | None = None  # a file in the run's directory, of a run that is not valid
    partial: str | None = None  # why the run is not complete
    started_at: str = ""
    environment: Environment = Environment()
    seed: int | None = None
    verdict: Verdict = field(default_factory=lambda: Verdict(
        level="invalid", reasons=[{"level": "invalid", "text": "no verdict recorded"}]))

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """metadata: of a run; of a captured trace, which has no account, all values are empty, and nothing is wrong."""
        run = metadata.get("run")
        if run is None:
            return cls(verdict=Verdict(level="valid", reasons=[], withheld=[]))
        return record(cls, run)

    @property
    def begin_ns(self) -> int:
        """On the clock of the records and of the telemetry: a background begins earlier by its lead."""
        return max((background.lead_ns for background in self.background), default=0)

    @property
    def load_time_ns(self) -> int | None:
        """From the first submit of workload I/O, of all I/O if none is marked, to the last completion, without the I/Os
        that a sleep by the clock put behind all others."""
        span_ns = self.wall_ns if self.own_wall_ns is None else self.own_wall_ns
        return span_ns and span_ns - (self.pace.by_clock_ns or 0)


class HasMetadata:
    """A trace, or the records of a run, by its metadata."""

    metadata: dict[str, Any]

    @property
    def is_run(self) -> bool:
        """Whether these are the records of a replay, and not a captured trace."""
        return "run" in self.metadata

    @cached_property
    def account(self) -> Run:
        return Run.of(self.metadata)


class Integrity(TypedDict):
    rows: int
    row_groups_at: list[int]
    crc32: dict[str, str]


class CutDependencies(TypedDict):
    row: list[int]
    waited_on: list[int]
    inherited: list[int]


CUT_COLUMNS: tuple[Literal["row", "waited_on", "inherited"], ...] = ("row", "waited_on", "inherited")


class PartOf(TypedDict):
    sha256: str
    source_rows: int
    first_row: int
    rows: int
    rebased_ns: NotRequired[int]  # subtracted from the times of the source
    cut: CutDependencies


class Step(TypedDict, total=False):
    command: Required[str]
    writer: str
    options: dict[str, Any]
    sources: list[dict[str, Any]]
    notes: list[str]


class DriveAgreement(TypedDict):
    """Of a shared trace over its original, - 1. load_time: None without known dependencies. read_p99: None without
    reads."""

    load_time: float | None
    read_p99: float | None


class ShareCertificate(TypedDict):
    """Replays of a shared trace and of its original. drives: by the names of the typical drives. swapped: pairs of them
    in another order, by load time if it is known, else by read p99."""

    pace: str
    drives: dict[str, DriveAgreement]
    largest: float
    pairs: int
    swapped: int


class TraceMetadata(TypedDict, total=False):
    schema_version: int
    source_format: str
    writer: str
    clock: str
    clock_resolution_ns: int
    source_lacks: list[str]
    times_step_ns: int
    kernel: str
    host: str
    command: list[str] | None
    title: str | None
    description: str | None
    cpu_count: int | None
    epoch_ns: int | None  # None of a replay that failed before its first I/O
    duration_ns: int
    clock_pairs: list[ClockPair]
    devices: list[Device]
    storage_layer: StorageLayer
    volumes: list[Volume]
    threads: dict[str, Thread]
    files: list[File] | None
    lost: Lost | None
    ring: Ring | None
    ledger: dict[str, Any] | None
    diskstats: dict[str, Any] | None
    unmatched: int | None
    in_flight_at_start: int | None
    in_flight_at_end: int | None
    helper_cpu_ns: int | None
    import_warnings: list[str]
    flag_names: dict[str, str]
    op_names: dict[str, str]
    integrity: Integrity
    history: list[Step]
    part_of: PartOf
    clock_uncertainty_ns: int | None
    emulated: list[EmulatedUse] | None
    certificate: ShareCertificate
    run: Run


# The tables whose keys are numbers, and of what.
_NUMBERED = {"flag_names": "a bit", "op_names": "an operation", "threads": "a thread"}


def wrong_metadata(metadata: Any) -> str | None:
    """The first part of the metadata of a trace that has not its type; None if all match."""
    if wrong := mismatch(metadata, TraceMetadata):
        return wrong
    for where, value_ns in _moments(metadata):
        if abs(value_ns) > _LATEST_NS:
            return f"{where} is out of range"
    if "part_of" in metadata and len({len(metadata["part_of"]["cut"][name]) for name in CUT_COLUMNS}) > 1:
        return "part_of.cut has columns of different lengths"
    return next((f"{table}.{key} is not the number of {of}" for table, of in _NUMBERED.items()
                 for key in metadata.get(table) or {} if not re.fullmatch(r"-?[0-9]{1,10}", key)), None)


def _moments(metadata: TraceMetadata) -> Iterator[tuple[str, int]]:
    """The times of clocks in the metadata, and where they are."""
    if (epoch_ns := metadata.get("epoch_ns")) is not None:
        yield "epoch_ns", epoch_ns
    for number, pair in enumerate(metadata.get("clock_pairs") or []):
        yield f"clock_pairs[{number}].monotonic_ns", pair["monotonic_ns"]
        yield f"clock_pairs[{number}].realtime_ns", pair["realtime_ns"]


def with_all_parts(run: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata key `run` with the parts that documents of reports show, as Run has them by default."""
    usual = Run()
    parts = {"source": {}, "pace": {"name": usual.pace.name},
             "idle": {"name": usual.idle.name, "cap_ns": usual.idle.cap_ns}, "verdict": usual.verdict, **run}
    return {**parts, "source": {"path": usual.source.path, **parts["source"]}}


def lacks(metadata: Mapping[str, Any], what: str) -> bool:
    """Whether the source did not record `what`: latency, thread, process, dependencies and so on."""
    return what in (metadata.get("source_lacks") or [])


def of_recording(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata. Of a run, with the losses of the recording that it replays, whose I/Os its rows lack, too, and with
    its own emulated drives, which its rows were measured on."""
    run = metadata.get("run") or {}
    source = run.get("source") or {}
    lost = {"lost": {**source["lost"], "per_cpu": {}, "intervals": []}} if source.get("lost") else {}
    ledger = {"missing": source.get("missing_ios"),
              **{key: source.get(key) for key in ("commands_unseen", "uses_lost")}}
    return {**metadata, **lost, "ledger": ledger, "emulated": run.get("emulated")} if source else dict(metadata)


def missing_ios(metadata: Mapping[str, Any]) -> list[str]:
    """What a capture said of I/Os that its trace lacks, apart from lost events."""
    texts, unmatched = (metadata.get("ledger") or {}).get("missing"), metadata.get("unmatched")
    return [*(map(str, texts) if isinstance(texts, list) else ()),
            *([f"{counted(unmatched, 'I/O')} completed whose issue was not seen"] if unmatched else [])]


def computed_at_least(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    """What the captured command computed at least, by one thread or by processors, and within how much time (ns).

    None: unknown.
    """
    ledger, processors = metadata.get("ledger") or {}, metadata.get("cpu_count") or 0
    if "least_computed_ns" in ledger:  # of a trace that was made from another
        return ledger["least_computed_ns"], ledger.get("computed_within_ns") or 0
    duration_ns = metadata.get("duration_ns")
    # A private capture names no command.
    has_command = metadata.get("command") or (metadata.get("filters") or {}).get("command")
    if not has_command or not ledger.get("computed_ns") or not processors or duration_ns is None:
        return None
    return max(ledger.get("longest_computed_ns") or 0, ledger["computed_ns"] // processors), duration_ns


def clock_step_ns(metadata: Mapping[str, Any]) -> int:
    """Step of the source's clock; 1 if it is not known."""
    return int(metadata.get("clock_resolution_ns") or 1)


def storage_layer(devices: Iterable[Mapping[str, Any]], volumes: Iterable[Volume]) -> StorageLayer:
    """Which layer a trace of these devices has: drives, volumes on them, or some of each."""
    names = {volume["name"] for volume in volumes}
    layers = {device.get("name") in names for device in devices}
    return "both" if len(layers) > 1 else "volume" if True in layers else "device"


def layers_of(metadata: Mapping[str, Any]) -> list[list[int]]:
    """The numbers of the devices of each layer, drives first, where a captured volume is on another captured device.

    An I/O is in each of these layers, so that no sum may have several of them. Empty for any other trace.
    """
    devices: list[Device] = metadata.get("devices") or []
    volumes: dict[str, Volume] = {volume["name"]: volume for volume in metadata.get("volumes") or []}
    names = [device.get("name", "") for device in devices]
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        """How many captured devices are below one another below this one."""
        if name not in heights:
            heights[name] = 0  # a damaged file may have a circle
            parts = volumes[name]["parts"] if name in volumes else []
            heights[name] = max((height(part["name"]) + (part["name"] in names) for part in parts), default=0)
        return heights[name]

    layers = grouped((height(name), number) for number, name in enumerate(names))
    return [layers[level] for level in sorted(layers)] if len(layers) > 1 else []
