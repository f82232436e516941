"""What the backgrounds of a run did while the foreground ran: the key `background` of the run's account."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from blkreel.common.files.typed_document import document_of
from blkreel.common.verdict import enough
from blkreel.replay.engine.engine import Batch
from blkreel.replay.engine.spans import OutstandingTime
from blkreel.replay.fidelity.lateness import Histogram
from blkreel.traces.format import metadata_types
from blkreel.traces.format.schema import OPS

from .streams import Background

# A write completes after it was due, and a burst due just before the end is not done by then: bytes completed are
# compared with those due at several times up to this share of the foreground's time, at most this time, before its end.
_GRACE_SHARE, _MOST_GRACE_NS, _GRACE_TIMES = 0.1, 10**9, 9


class BackgroundTotals:
    """Sums over the rows of one background, in the order of completion.

    begin_ns: when the foreground starts. The end is that of the foreground so far: rows of the background that
    complete later wait for it.
    """

    def __init__(self, background: Background, begin_ns: int):
        self._background, self._begin_ns = background, begin_ns
        self._op = OPS[background.counted_op]
        self._ios = self._bytes = self._bytes_before = 0  # bytes_before: completed before those in _waiting
        self._sha256 = background.sha256()
        self._latency = Histogram()
        self._outstanding = OutstandingTime()
        # (completion, bytes) of the last _MOST_GRACE_NS before the end so far, and beyond it
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, rows: Batch) -> None:
        rows = {name: rows[name] for name in ("stream", "op", "submit_ns", "complete_ns", "length_bytes")}
        mask = (rows["stream"] == self._background.number) & (rows["complete_ns"] >= rows["submit_ns"])
        self._ios += int(mask.sum())
        mask &= rows["op"] == self._op
        if not mask.any():
            return
        submit_ns, complete_ns, length = (rows[name][mask] for name in ("submit_ns", "complete_ns", "length_bytes"))
        self._bytes += int(length.sum())
        during = complete_ns >= self._begin_ns
        if not during.any():
            return
        submit_ns, complete_ns, length = submit_ns[during], complete_ns[during], length[during]
        self._latency.add(complete_ns - submit_ns)
        self._outstanding.add(np.maximum(submit_ns, self._begin_ns), complete_ns)
        self._waiting.append((complete_ns, length))

    def foreground_until(self, end_ns: int) -> None:
        """The foreground has run until end_ns so far."""
        left = []
        for complete_ns, length in self._waiting:
            early = complete_ns < end_ns - _MOST_GRACE_NS
            self._bytes_before += int(length[early].sum())
            if not early.all():
                left.append((complete_ns[~early], length[~early]))
        self._waiting = left

    def _bytes_until(self, end_ns: int) -> int:
        """Completed since the foreground's start. end_ns: at most _MOST_GRACE_NS before the end so far."""
        return self._bytes_before + sum(int(length[complete_ns < end_ns].sum())
                                        for complete_ns, length in self._waiting)

    def _reached_share(self, end_ns: int) -> float | None:
        grace_ns = min(round((end_ns - self._begin_ns) * _GRACE_SHARE), _MOST_GRACE_NS)
        ends_ns = np.linspace(end_ns - grace_ns, end_ns, _GRACE_TIMES).astype(np.int64)
        due_bytes = self._background.due_bytes(self._begin_ns, ends_ns)
        if not due_bytes[0]:
            return None
        return min(1.0, max(self._bytes_until(int(end_ns)) / int(due) for end_ns, due in
                            zip(ends_ns, due_bytes, strict=True)))

    def _percentile_ns(self, per_mille: int) -> int | None:
        return self._latency.percentile_ns(per_mille) if enough(self._latency.total, (per_mille, 1000)) else None

    def account(self, end_ns: int, lead_ns: int, *, is_final: bool) -> metadata_types.Background:
        """is_final: False of a run that goes on, without the share reached, which reads the plan again."""
        background, duration_ns = self._background, max(0, end_ns - self._begin_ns)
        return metadata_types.Background(
            stream=background.number, spec=background.spec.text, words=background.words(), sha256=self._sha256,
            part={"start_bytes": background.part.start_bytes, "size_bytes": background.part.size_bytes},
            asked_bytes_s=background.asked_bytes_s, ios=self._ios, bytes=self._bytes,
            reached_bytes_s=self._bytes_until(end_ns) * 10**9 / duration_ns if duration_ns else None,
            reached_share=self._reached_share(end_ns) if is_final and duration_ns else None,
            outstanding_share=self._outstanding.until(end_ns) / duration_ns if duration_ns else None,
            latency_p50_ns=self._percentile_ns(500), latency_p99_ns=self._percentile_ns(990),
            phase=background.phase, period_ns=background.period_ns, lead_ns=lead_ns)


class Backgrounds:
    """The totals of all backgrounds of a run."""

    def __init__(self, backgrounds: Sequence[Background], begin_ns: int, lead_ns: int):
        self._totals = [BackgroundTotals(background, begin_ns) for background in backgrounds]
        self._lead_ns = lead_ns
        self._end_ns = begin_ns

    def add(self, background_rows: Batch | None, foreground_rows: Batch) -> None:
        """Rows of one batch of records."""
        if background_rows is not None:
            for totals in self._totals:
                totals.add(background_rows)
        if len(foreground_rows["complete_ns"]):
            self._end_ns = max(self._end_ns, int(foreground_rows["complete_ns"].max()))
        for totals in self._totals:
            totals.foreground_until(self._end_ns)

    def account(self, *, is_final: bool) -> list[dict[str, Any]]:
        """A document of metadata_types.Background for each."""
        return [document_of(totals.account(self._end_ns, self._lead_ns, is_final=is_final))
                for totals in self._totals]
