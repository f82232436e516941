"""The verdict on a run: the replay's own, and reasons that the analysis adds."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from blkreel.analysis.metrics.definitions.metric import SHARE
from blkreel.analysis.metrics.provider_limit import GroupLimit, ProviderLimit
from blkreel.analysis.metrics.stalls import Stalls
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import emulated
from blkreel.common.device import NETWORKS
from blkreel.common.units import counted, duration
from blkreel.common.verdict import UNSEEN_LIMIT, Level, Reason, Verdict, judged, merged, note, reason, recorded
from blkreel.traces.format.metadata_types import Run, lacks, missing_ios

Document = dict[str, Any]  # a JSON object: a document, a section, an entry or metadata

START_APART_C = 3.0  # docs/method.md, "Verdict on a run"


def verdict(metadata: Document, numbers: Document, limit: ProviderLimit | GroupLimit | None = None,
            stalled: Stalls | None = None) -> Verdict:
    """The verdict (common/verdict.py) on one run or captured trace.

    Starts from the replay's verdict (docs/method.md, "Verdict on a run") and adds reasons from the records, each once.
    limit: of the provider, a note, because the figures are those of the volume as it is sold; those of a run in a
    control group are not those of its drive. stalled: a note too, as a drive that stalls is like that; but behind a
    network its figures are also those of the connection.
    """
    run = Run.of(metadata)
    replayed = recorded(run.verdict)
    reasons = replayed["reasons"]
    notes = list(replayed["notes"])

    def add(code: str, level: Level, text: str, *known_by: str) -> None:
        # Reasons of earlier versions have no code of their own.
        if not any(reason["code"] == code or any(word in reason["text"].lower() for word in known_by)
                   for reason in reasons):
            reasons.append(reason(code, level, text))

    if isinstance(limit, GroupLimit) and "run" in metadata:
        add("io_max", "qualified", limit.words)
    elif limit:
        notes.append(note("io_max" if isinstance(limit, GroupLimit) else "provider_limit", limit.words))
    if stalled and (network := _network(metadata)):
        add("stall", "qualified", f"{stalled.words}: the connection ({network}) or its target")
    elif stalled:
        notes.append(note("stall", stalled.words))
    if numbers["all"]["error_ops"]:
        add("io_errors", "invalid", f"{counted(numbers['all']['error_ops'], 'I/O')} failed", "failed")
    lost = lost_events(metadata)
    if lost:
        add("lost_events", "qualified", f"{counted(lost, 'event')} lost by the capture", "lost")
    if "run" not in metadata:
        reasons += [reason("incomplete_capture", "qualified", f"the capture is not complete: {text}")
                    for text in missing_ios(metadata)]
        reasons += emulated.reasons(metadata.get("emulated") or [])
        ops, unseen = (numbers["all"][key] for key in ("ops", "unseen_ops"))
        if not ops:
            add("no_completed_ios", "invalid", _no_completions(metadata, unseen))
        elif (share := unseen / (ops + unseen)) > UNSEEN_LIMIT:
            reasons.append(reason("unseen_completions", "qualified", f"{SHARE.text(share)} of the I/Os have no "
                                  f"completion (limit {SHARE.text(UNSEEN_LIMIT)})", None, share, UNSEEN_LIMIT))
        return judged(reasons, notes=notes)
    if run.issued_ops == 0:
        add("no_completed_ios", "invalid", "it issued no I/O: there are no figures")
    if run.partial:
        add("partial_run", "invalid", f"partial run: {run.partial}", "cut short", "partial", "interrupted")
    if numbers["writer"]["state"] == "fell behind":
        add("writer_fell_behind", "qualified", f"writer fell behind: {_behind_words(numbers['writer'])}")
    if run.idle.name != "original":
        add("idle_removed", "qualified", "idle time compressed", "idle")
    return judged(reasons, replayed["level"], notes, replayed["withheld"])


def _network(metadata: Document) -> str:
    """`tcp`, of the drives behind a network."""
    devices = metadata.get("devices") or []
    networks = {name for device in devices for name in (device.get("transport") or "").split(", ")} & set(NETWORKS)
    return ", ".join(sorted(networks))


def _no_completions(metadata: Document, unseen: int) -> str:
    if not unseen:
        return "it holds no workload I/O: there are no figures"
    if lacks(metadata, "latency"):
        return f"no service times: its source ({metadata.get('source_format', 'unknown')}) records no completions"
    return f"none of {unseen:,} I/Os was seen to complete: there are no figures"


def _behind_words(writer: Document) -> str:
    if writer["late_bursts"]:
        return (f"{writer['late_bursts']} of {writer['planned_bursts']} write bursts were due before the earlier had "
                "ended")
    if writer["lag_ns"]:
        return (f"{SHARE.text(writer['written_on_time'])} of the bytes were written by the time the last write was "
                f"due, lag {duration(writer['lag_ns'])}")
    return f"{SHARE.text(writer['written_share'])} of the bytes were written"


def of_runs(verdicts: Sequence[Verdict], starts_c: Sequence[float | None] = ()) -> Verdict:
    """The verdict on a set of runs: the worst of them, each reason once, and whether they are enough.

    starts_c: the drive's temperature at the start of each run, None where unknown, which is held against none.
    """
    reasons: list[Reason] = []
    if len(verdicts) < ENOUGH_RUNS:
        reasons.append(reason("few_runs", "qualified", f"n={len(verdicts)}: fewer than {ENOUGH_RUNS} runs, no interval",
                              None, len(verdicts), ENOUGH_RUNS))
    if temperatures_c := [start_c for start_c in starts_c if start_c is not None]:
        usual_c = median(temperatures_c)
        furthest_c = max(temperatures_c, key=lambda start_c: abs(start_c - usual_c))
        if abs(furthest_c - usual_c) > START_APART_C:
            reasons.append(reason("start_temperature", "qualified", f"a run began with the drive at "
                                  f"{furthest_c:.0f} C, the set at {usual_c:.0f} C", None, abs(furthest_c - usual_c),
                                  START_APART_C))
    return merged(verdicts, reasons)


def lost_events(metadata: Document) -> int:
    """Events lost by the capture that this trace is, or that this run replays."""
    lost = Run.of(metadata).source.lost or metadata.get("lost")
    return lost["total"] or 0 if lost else 0
