"""Types of the metadata of traces and runs that readers rely on. A key may be missing; unknown keys are accepted.

At the end: what the source of a trace did not record (docs/import.md), and so what cannot be done with the trace.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, Required, TypedDict

from blkreel.common.emulated import EmulatedUse
from blkreel.common.files.typed_document import Unsigned, mismatch
from blkreel.common.verdict import Level

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
    serial_hash: str
    layer: str


class RunDrive(TypedDict, total=False):
    name: Required[str]
    model: str
    size_bytes: int
    serial_hash: str


class Thread(TypedDict, total=False):
    comm: str
    pid: int
    process: str
    names: list[str]


class LostInterval(TypedDict):
    first_ns: int
    last_ns: int
    count: int


class Lost(TypedDict, total=False):
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


class Reason(TypedDict, total=False):
    code: str
    level: Required[Level]
    text: Required[str]
    metric: str | None
    value: float | None
    limit: float | None
    steps: list[str]


class Note(TypedDict, total=False):
    code: str
    text: Required[str]


class Verdict(TypedDict, total=False):
    level: Required[Level]
    reasons: Required[list[Reason]]
    notes: list[Note]
    withheld: list[str]


class ReadAhead(TypedDict, total=False):
    ios: int | None
    read_ahead_ios: int | None


ComputeSpeed = float | Literal["none"] | None


class Pace(TypedDict, total=False):
    name: Required[Literal["original", "scaled", "paced", "dependent", "depth", "asap"]]
    depth: int | None
    factor: float | None
    compute: ComputeSpeed
    dependencies: str | None
    read_ahead: ReadAhead | None
    streams: dict[str, "Pace"] | None


class ComputePoint(TypedDict):
    compute: float | Literal["none"]
    load_time_ns: int


class ZeroLatency(TypedDict, total=False):
    load_time_ns: int | None


class ReadTimes(TypedDict, total=False):
    load_time_ns: int | None
    wait_ns: int | None


class SlowdownRatios(TypedDict):
    load_time: float | None
    read_wait: float | None


class Baseline(TypedDict, total=False):
    path: Required[str]
    without: list[str]
    load_time_ns: int | None
    read_wait_ns: int | None
    verdict: str
    reason: str | None
    withheld: list[str]
    slowdown: Required[SlowdownRatios]
    phases: list[float] | None


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


class Idle(TypedDict, total=False):
    name: Required[str]
    cap_ns: Required[int | None]
    removed_ns: int


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


class Source(TypedDict, total=False):
    path: str | None
    sha256: str | None
    rows: int | None
    device: int | None
    duration_ns: int | None
    streams: list[Stream] | None
    programs: list[str] | None
    title: str | None
    description: str | None
    command: list[str] | None
    devices: list[Device] | None
    lost: Lost | None
    source_lacks: list[str] | None
    times_step_ns: int | None


class Lateness(TypedDict, total=False):
    p50_ns: Required[int]
    p99_ns: Required[int]
    max_ns: Required[int]
    queue_full_ops: Required[int]
    host_late_ops: int


class Power(TypedDict, total=False):
    meter: Required[str]
    rail: str | None
    average_w: Required[float]
    energy_j: Required[float]
    gaps: Required[int]
    covered_ns: Required[int]


class Temperature(TypedDict):
    start: float
    max: float
    end: float


class WriteCounters(TypedDict):
    unit: str
    host: int
    media: int
    host_step: int
    media_step: int


class Smart(TypedDict, total=False):
    changed: dict[str, float]
    critical_warning: int
    writes: WriteCounters | None


class DriveTelemetry(TypedDict, total=False):
    temperature_c: Temperature | None
    throttled: int | None
    link: dict[str, float | None] | None
    smart: Smart | None


class Telemetry(DriveTelemetry, total=False):
    power: Power | None
    drives: dict[str, DriveTelemetry] | None
    missing: dict[str, str] | None
    notes: dict[str, Any] | None


class Background(TypedDict, total=False):
    words: Required[str]
    spec: str
    asked_bytes_s: Required[float]
    reached_bytes_s: Required[float | None]
    reached_share: Required[float | None]
    outstanding_share: Required[float | None]
    latency_p50_ns: int | None
    latency_p99_ns: Required[int | None]


class MetricEffect(TypedDict, total=False):
    effect: Required[float]
    level: str


class HostEffect(TypedDict, total=False):
    limits: dict[str, float]
    metrics: dict[str, MetricEffect]
    headline: list[str]


class Gaps(TypedDict):
    mean_ns: int
    p50_ns: int
    p99_ns: int


class ChangedGaps(TypedDict):
    p50_ns: int
    p99_ns: int
    max_ns: int


class Arrivals(TypedDict):
    planned: Gaps
    issued: Gaps
    ks: float
    changed: ChangedGaps


class InFlight(TypedDict):
    mean: float
    p50: int
    p99: int
    max: int


class InFlightComparison(TypedDict):
    captured: InFlight | None
    replayed: InFlight | None
    ks: float | None


class StallCause(TypedDict, total=False):
    count: Required[int]
    total_ns: Required[int]
    longest_ns: Required[int]
    late_ops: Required[int]
    words: str | None


class HostAccount(TypedDict, total=False):
    preemptions: Required[int]
    waited_ns: int | None
    steal_ns: int | None
    suspended_ns: int | None
    throttled: int | None
    causes: dict[str, StallCause]


class Certificate(TypedDict, total=False):
    arrivals: Arrivals | None
    in_flight: InFlightComparison | None
    host: HostAccount | None


class Link(TypedDict, total=False):
    speed_gts: float | None
    width: float | None


class Environment(TypedDict, total=False):
    blkreel: str
    kernel: str
    cpu_model: str | None
    link: Link | None


class Run(TypedDict, total=False):
    label: str
    simulated: bool
    drive: Device
    drives: list[RunDrive] | None
    source: Source
    pace: Pace
    idle: Idle
    map: dict[str, Any]
    without: list[str] | None
    state: DriveState | None
    reads: ReadTimes | None
    baseline: Baseline | None
    zero_latency: ZeroLatency | None
    compute_curve: list[ComputePoint] | None
    payload: dict[str, int] | None
    polled: bool
    planned_ops: int
    issued_ops: int
    completed_ops: int
    moved_bytes: int
    written_bytes: int
    error_ops: int
    errors: dict[str, int]
    altered: dict[str, int]
    dropped: dict[str, int]
    hazards: int
    plan_ns: int | None
    wall_ns: int
    own_wall_ns: int | None
    lateness: Lateness | None
    background: list[Background] | None
    drift_ns: int
    underruns: int
    record_stalls: int
    certificate: Certificate | None
    host_effect: HostEffect | None
    emulated: list[EmulatedUse] | None
    telemetry: Telemetry | None
    latency_log: str | None
    partial: str | None
    started_at: str
    environment: Environment
    verdict: Verdict


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


# What readers find where a writer left a part of `run` out.
_PARTS_OF_RUN: Run = {
    "source": {"path": None}, "pace": {"name": "original"}, "idle": {"name": "unknown", "cap_ns": None},
    "verdict": {"level": "invalid", "reasons": [{"level": "invalid", "text": "no verdict recorded"}]}}


def with_all_parts(run: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata key `run` with the parts that readers need."""
    parts = {**_PARTS_OF_RUN, **run}
    return {**parts, "source": {**_PARTS_OF_RUN["source"], **parts["source"]}}


def lacks(metadata: Mapping[str, Any], what: str) -> bool:
    """Whether the source did not record `what`: latency, thread, process, dependencies and so on."""
    return what in (metadata.get("source_lacks") or [])


def clock_step_ns(metadata: Mapping[str, Any]) -> int:
    """Step of the source's clock; 1 if it is not known."""
    return int(metadata.get("clock_resolution_ns") or 1)
