"""Decides everything about the replay of a trace before its drives are opened: checks, survey, mapping, prefill."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.units import format_ns
from blkreel.replay.drive import safety
from blkreel.replay.drive.target import Target, engine_options
from blkreel.replay.engine.engine import MAX_LANES
from blkreel.traces.format.check import check_order
from blkreel.traces.format.metadata_types import COARSE_CLOCK_NS, clock_step_ns, lacks
from blkreel.traces.format.trace import Trace
from blkreel.traces.samples import called

from . import dependencies, survey_cache
from .extents import MappedBlocks
from .mapping import Part, choose_mapping
from .pace import IdlePolicy, Pace
from .plan import DrivePlan, TracePlan
from .shards import sharding_of
from .survey import OnRows, Survey, choose_device, read_first_on, source_bytes, survey_trace
from .zoned import check_options, plan_zones


def plan_trace(trace: Trace, targets: Target | dict[int, Target], *, pace: Pace, idle: IdlePolicy,
               stream_paces: dict[int, Pace] | None = None, map_name: str | None = None, device: int | None = None,
               prefill: bool = True, threads: int | str = 1, on_rows: OnRows = lambda rows: None,
               without: tuple[str, ...] = (), part: Part | None = None) -> TracePlan:
    """Survey the trace and decide everything about its replay; opens no drive.

    targets: of each device of the trace to replay, or one for the only or the chosen device. threads: number of
    issuing threads, or `auto`. on_rows: see survey_trace(). without: see TracePlan. part: of a single target, where the
    trace goes. Raises TraceError, UsageError, or
    BlkreelError if the trace does not fit.
    """
    _check_order(trace)
    if isinstance(targets, Target):
        targets = {choose_device(trace, device): targets}
    else:
        for number in targets:
            choose_device(trace, number)
    for target in targets.values():
        if (target.block is None and not target.is_nil and isinstance(trace.path, Path)
                and target.path.samefile(trace.path)):
            raise UsageError(f"{target.path} is the trace itself", "name the drive, or a scratch file, to replay on")
    safety.check_distinct(targets)
    engine_options(list(targets.values()))
    stream_paces = dict(stream_paces or {})
    _check_source(trace, [pace, *stream_paces.values()])
    _check_streams(trace, stream_paces)
    block_bytes = {number: target.block_bytes for number, target in targets.items()}
    survey = survey_trace(trace, list(targets), idle, block_bytes, on_rows, reads_only=bool(without))
    if len(targets) > 1 and (map_name or "").startswith("tile"):
        raise UsageError("--map tile needs a single drive", "replay the devices one after the other: --device N")
    drives = tuple(_drive_plan(trace, target, survey.by_device[number], map_name, prefill, on_rows, bool(without), part)
                   for number, target in targets.items())
    if isinstance(threads, int) and threads + len(stream_paces) > MAX_LANES:
        raise UsageError(f"{threads} threads and {len(stream_paces)} streams with paces of their own are too many",
                         f"use at most {MAX_LANES} of both together")
    dependent = any(pace.dependent for pace in (pace, *stream_paces.values()))
    zoned = not without and any(drive.zones and drive.changes_drive for drive in drives)
    check_options(zoned, dependent=dependent, streams=bool(stream_paces), threads=threads)
    observed = dependent and dependencies.is_observed(trace)
    plan = TracePlan(trace, drives, pace, idle, survey, stream_paces, observed, without=without)
    return replace(plan, sharding=sharding_of(plan, 1 if zoned else threads))


def _drive_plan(trace: Trace, target: Target, survey: Survey, map_name: str | None, prefill: bool,
                on_rows: OnRows, reads_only: bool, part: Part | None) -> DrivePlan:
    if target.drive.zoned:
        if map_name not in (None, "identity"):
            raise UsageError(f"{target.path} is zoned, and its zones would not be those of the trace: --map {map_name}",
                             "leave it out, or use a drive without zones")
        map_name = "identity"
    mapping = choose_mapping(map_name, survey.touched, target, called(trace.path), longest_bytes=survey.longest_bytes,
                             source_bytes=source_bytes(trace, survey.device), part=part)
    zoned = plan_zones(trace, target, survey.device, mapping, prefill=prefill, reads_only=reads_only, on_rows=on_rows)
    if zoned and prefill:
        return DrivePlan(target, survey, mapping, *zoned[1:], device=survey.device, zones=zoned[0])
    read_first = read_first_on(trace, survey, mapping, on_rows, reads_only=reads_only)
    none = MappedBlocks()
    return DrivePlan(target, survey, mapping, *((read_first, none) if prefill else (none, read_first)),
                     device=survey.device, zones=zoned[0] if zoned else None)


def _check_order(trace: Trace) -> None:
    """Raises UsageError if submit times step back."""
    if survey_cache.load(trace, "order") is None:
        check_order(trace)
        survey_cache.store(trace, "order", {}, {})


def _check_source(trace: Trace, paces: list[Pace]) -> None:
    """Raises UsageError for a pace that needs what the source of an imported trace did not record."""
    resolution_ns = clock_step_ns(trace.metadata)
    for pace in paces:
        if not pace.saturating and resolution_ns >= COARSE_CLOCK_NS:
            raise UsageError(f"--pace {pace}: the submit times of {trace.name} have a resolution of "
                             f"{format_ns(resolution_ns)}, too coarse to repeat them",
                             "replay it without its times: --pace depth=32, or --pace asap; if the clock was finer, or "
                             "the limit is accepted: blkreel import --clock-resolution 1us")
        if pace.dependent and lacks(trace.metadata, "latency"):
            raise UsageError(f"--pace dependent: the source of {trace.name} recorded no completion, so that no I/O is "
                             "known to have waited for another", "replay it at its times: --pace original")


def _check_streams(trace: Trace, stream_paces: dict[int, Pace]) -> None:
    """Raises UsageError for a stream that the trace does not have."""
    if not stream_paces:
        return
    streams: set[int] = set()
    if "stream" in trace.schema.names:
        for batch in trace.batches(["stream"]):
            streams.update(np.unique(batch["stream"].to_numpy()).tolist())
    missing = sorted(set(stream_paces) - streams)
    if missing:
        listing = f"it has: {', '.join(map(str, sorted(streams)))}" if streams else "it has none: give one pace for all"
        raise UsageError(f"{trace.name} has no stream {missing[0]}", listing)
