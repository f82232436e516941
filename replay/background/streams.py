"""The I/Os of a background: a recorded trace over and over, or generated writes, without an end."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from blkreel.common.units import digits, format_bytes, setting
from blkreel.replay.engine.engine import Batch, Lane
from blkreel.replay.plan.extents import MappedBlocks
from blkreel.replay.plan.mapping import Part
from blkreel.replay.plan.pace import MAX_DEPTH, InFlightLimits
from blkreel.replay.plan.plan import LEAD_NS, TracePlan
from blkreel.replay.streams.generate import batches
from blkreel.replay.streams.spec import StreamSpec
from blkreel.traces.format.schema import FLAGS, OPS

from .spec import BackgroundSpec

ROLE = FLAGS["role_background"]
_LEAST_WRITTEN = 0.01  # of the bytes read: a trace that writes less is a reader


@dataclass(frozen=True)
class Background(ABC):
    """One background of a run on one target. number: its stream. phase: of its period, at which it starts, 0 to 1."""

    spec: BackgroundSpec
    number: int
    part: Part
    phase: float = 0.0

    @property
    @abstractmethod
    def asked_bytes_s(self) -> float:
        """Mean rate of its I/Os of counted_op."""

    @property
    @abstractmethod
    def period_ns(self) -> int | None:
        """After this time it repeats itself; None for writes at an even rate, which have no phases."""

    @property
    @abstractmethod
    def writes(self) -> bool: ...

    @property
    def counted_op(self) -> str:
        """Its rate is that of these I/Os: `write`, or `read` of a trace that hardly writes."""
        return "write"

    @property
    @abstractmethod
    def depth(self) -> int: ...

    @property
    def prefill(self) -> MappedBlocks:
        """Blocks that it reads before it writes them."""
        return MappedBlocks()

    def sha256(self) -> str | None:
        """SHA-256 of its trace; None without one."""
        return None

    @abstractmethod
    def _batches(self) -> Iterator[Batch]:
        """Its I/Os in order, without end, as plan_batch() makes them; due from LEAD_NS on."""

    def batches(self) -> Iterator[Batch]:
        """As _batches(), with stream and role. No I/O of a background is workload I/O."""
        for batch in self._batches():
            flags = (batch["flags"] & ~FLAGS["own"]) | ROLE
            yield {**batch, "flags": flags, "stream": np.full(len(flags), self.number, np.int16)}

    def words(self) -> str:
        """`writes of 110 MB/s`, `writes of 40 MB every 2 s`, `sample:download at 20.3 MB/s`."""
        spec = self.spec
        if spec.trace is None and spec.every_ns is not None:
            return f"writes of {format_bytes(spec.written_bytes)} every {setting(spec.every_ns)}"
        rate = f"{digits(self.asked_bytes_s / 1e6)} MB/s"
        return f"writes of {rate}" if spec.trace is None else f"{spec.trace.rpartition('/')[2]} at {rate}"

    def lane(self, thread: int) -> Lane:
        return Lane(self.batches(), self.depth, thread, background=True)

    def due_bytes(self, begin_ns: int, ends_ns: np.ndarray) -> np.ndarray:
        """Bytes of those that asked_bytes_s counts that are due from begin_ns to each of ends_ns, which ascend."""
        op, due_bytes = OPS[self.counted_op], np.zeros(len(ends_ns), np.int64)
        for batch in self.batches():
            counted = (batch["due_ns"] >= begin_ns) & (batch["op"] == op)
            until = np.concatenate([[0], np.cumsum(batch["length_bytes"][counted])])
            due_bytes += until[np.searchsorted(batch["due_ns"][counted], ends_ns)]
            if batch["due_ns"][-1] >= ends_ns[-1]:
                break
        return due_bytes


@dataclass(frozen=True)
class GeneratedWrites(Background):
    """stream: with its times from the start of the run on; bursts and rates have no end."""

    stream: StreamSpec = field(kw_only=True)

    @property
    def asked_bytes_s(self) -> float:
        return self.spec.written_bytes * 10**9 / (self.spec.every_ns or 10**9)

    @property
    def period_ns(self) -> int | None:
        return self.spec.every_ns

    @property
    def writes(self) -> bool:
        return True

    @property
    def depth(self) -> int:
        return self.stream.depth

    def _batches(self) -> Iterator[Batch]:
        stream = self.stream
        if stream.bursts:
            # At a phase of 0.3 the burst before the start was 0.3 of the period earlier.
            first_ns = round((1 - self.phase) % 1 * stream.bursts.every_ns)
            stream = replace(stream, bursts=replace(stream.bursts, first_ns=first_ns))
        for batch in batches(stream):
            yield {**batch, "due_ns": LEAD_NS + batch["due_ns"]}


@dataclass(frozen=True)
class LoopedTrace(Background):
    """plan: of the trace at its original pace, on its part of the drive."""

    plan: TracePlan = field(kw_only=True)

    @property
    def asked_bytes_s(self) -> float:
        return self._moved_bytes * 10**9 / self.period_ns

    @property
    def period_ns(self) -> int:
        """The recording and one mean gap between two I/Os; at another rate divided by the ratio of both."""
        if self.spec.rate_bytes_s:
            return max(1, round(self._moved_bytes * 10**9 / self.spec.rate_bytes_s))
        return self._recorded_ns

    @property
    def writes(self) -> bool:
        return self.plan.drives[0].survey.bytes.get("write", 0) > 0

    @property
    def counted_op(self) -> str:
        moved = self.plan.drives[0].survey.bytes
        written_bytes, read_bytes = moved.get("write", 0), moved.get("read", 0)
        return "write" if written_bytes and written_bytes >= _LEAST_WRITTEN * read_bytes else "read"

    @property
    def depth(self) -> int:
        return MAX_DEPTH

    @property
    def prefill(self) -> MappedBlocks:
        return self.plan.drives[0].prefill

    def sha256(self) -> str | None:
        return self.plan.source_sha256()

    @property
    def _moved_bytes(self) -> int:
        return self.plan.drives[0].survey.bytes.get(self.counted_op, 0)

    @property
    def _recorded_ns(self) -> int:
        survey = self.plan.trace_survey
        return max(1, survey.duration_ns + survey.duration_ns // max(1, survey.total_ios - 1))

    def _batches(self) -> Iterator[Batch]:
        recorded_ns, factor = self._recorded_ns, self.period_ns / self._recorded_ns
        skipped_ns = round(self.phase * recorded_ns)
        limits = InFlightLimits()
        number = 0
        while True:
            pass_ns = number * recorded_ns
            for batch in self.plan.batches():
                submit_ns = pass_ns + batch["due_ns"] - LEAD_NS
                mask = submit_ns >= skipped_ns
                if not mask.all():
                    batch, submit_ns = {name: values[mask] for name, values in batch.items()}, submit_ns[mask]
                if not len(submit_ns):
                    continue
                # As many in flight as in the recording: a limit of the writer, whatever its rate is.
                in_flight = limits.of(submit_ns, batch["captured_latency_ns"])
                yield {**batch, "due_ns": LEAD_NS + np.rint((submit_ns - skipped_ns) * factor).astype(np.int64),
                       "captured_ns": submit_ns, "in_flight": in_flight,
                       "source_row": batch["source_row"] + number * self.plan.trace.rows}
            number += 1
