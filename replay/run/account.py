"""The account of a run: the metadata key `run` of its records. metadata_types.Run defines its keys."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from blkreel.common.files.typed_document import document_of
from blkreel.replay.background.account import Backgrounds
from blkreel.replay.background.phases import PhaseTimes
from blkreel.replay.fidelity.certificate import certified
from blkreel.replay.fidelity.verdict import judge
from blkreel.traces.format.metadata_types import Baseline, Run, SlowdownRatios
from blkreel.traces.format.reader import BASELINE

from .records import RunRecords

WITHOUT = ("writes",)
RunAccount = dict[str, Any]  # a document of Run


def baseline_account(baseline: RunAccount, reads: dict[str, Any] | None, is_dependent: bool,
                     load_time_ns: int | None = None,
                     other_phases: Sequence[PhaseTimes] = ()) -> dict[str, Any] | None:
    """The entry `baseline` of a run, a document of Baseline; None if one of them completed no read.

    reads: of the run. load_time_ns: of all workload I/O of a run with a background, which is the same in the baseline;
    None of a run whose baseline has its reads only.
    """
    before = baseline["reads"]
    if before is None or reads is None:
        return None
    alone_ns = before["load_time_ns"] if load_time_ns is None else Run.of({"run": baseline}).load_time_ns
    beside_ns = reads["load_time_ns"] if load_time_ns is None else load_time_ns
    load_times = [_ratio(each_ns, alone_ns) for each_ns in (
        beside_ns, *(phase["load_time_ns"] for phase in other_phases))] if is_dependent else []
    read_waits = [_ratio(each_ns, before["wait_ns"]) for each_ns in (
        reads["wait_ns"], *(phase["read_wait_ns"] for phase in other_phases))]
    verdict = baseline["verdict"]
    return document_of(Baseline(
        path=BASELINE, without=list(WITHOUT) if load_time_ns is None else ["background"], load_time_ns=alone_ns,
        read_wait_ns=before["wait_ns"], verdict=verdict["level"],
        reason=next((reason["text"] for reason in verdict["reasons"]), None), withheld=verdict["withheld"],
        slowdown=SlowdownRatios(load_time=_mean(load_times), read_wait=_mean(read_waits)),
        phases=[ratio for ratio in (load_times or read_waits) if ratio] if other_phases else []))


def recounted(batches: Iterable[pa.RecordBatch], account: RunAccount) -> RunAccount:
    """The account that a replay stored some time before it was killed, with the sums of all its rows."""
    records = RunRecords(None, Backgrounds((), 0, 0) if account["background"] else None)
    for batch in batches:
        rows = {name: batch[name].to_numpy() for name in batch.schema.names}
        records.add({**rows, "complete_ns": rows["submit_ns"] + rows["latency_ns"], "target": rows["device"]})
    account = {**account, **records.account()}
    account["certificate"] = certified(account)
    return {**account, "verdict": judge(account)}


def _mean(ratios: Sequence[float | None]) -> float | None:
    """Their geometric mean; None without ratios, or if one is unknown."""
    values = [ratio for ratio in ratios if ratio]
    return math.exp(sum(map(math.log, values)) / len(values)) if values and len(values) == len(ratios) else None


def _ratio(with_writes_ns: int, without_ns: int | None) -> float | None:
    return with_writes_ns / without_ns if without_ns else None
