"""The verdict on a run, a trace or a benchmark: its level, and reasons with stable codes (docs/method.md, "Reasons").

Replay, analysis and benchmarks add reasons. Reports group them by code.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Required, TypedDict, cast

Level = Literal["valid", "qualified", "invalid"]
LEVELS: tuple[Level, ...] = ("valid", "qualified", "invalid")

# Share of the I/Os without a completion event. A capture with more is not trustworthy, and its replay is qualified.
UNSEEN_LIMIT = 0.01
# Share of read-ahead above which the load time of a dependent replay is only a lower bound. Programs that computed
# while the kernel read nearly all of their data ahead were 7 to 26 % short, so at this share it is at most 3 %.
READ_AHEAD_LIMIT = 0.1
# Share of the time between the I/Os of threads that they slept for other threads, locks and timers. A data scan with
# 82 % had 4 of the program's 11 reads in flight on a slower drive, and programs with up to 13 % were within 13 %.
ASLEEP_LIMIT = 0.25
BY_CLOCK_LIMIT = 0.02
# Bytes that a background wrote / bytes that were due.
BACKGROUND_LIMIT = 0.95
# Of the bytes read beside a background on a fitted drive, those of reads of sizes that were not fitted.
NOT_FITTED_LIMIT = 0.05

ENOUGH_BEYOND = 10  # a percentile is shown if at least so many values lie beyond it

# code -> cause. A code never changes its meaning; docs/method.md lists the same.
CODES = {
    # of a run
    "partial_run": "the run ended before its plan: its load time is withheld",
    "no_drive": "the target was `nil:SIZE` without a model",
    "io_errors": "I/Os failed",
    "missing_ios": "planned I/Os were not issued or not completed",
    "plan_differs": "issued I/Os differ from the plan",
    "unsupported_ios": "the drive does not support an operation of the trace",
    "unwritten_reads": "blocks were read that were never written",
    "external_io": "other programs used the drive",
    "array_copies": "an array (md, LVM RAID) below or beside the target copied data between its drives (resync, check, "
                    "recover)",
    "array_incomplete": "an array (md, LVM RAID) below or beside the target lacked drives",
    "page_cache": "the target is accessed through the page cache",
    "slow_link": "the link is slower or narrower than drive and slot support, or became so during the run",
    "drive_errors": "new media or uncorrectable errors of the drive",
    "machine_suspended": "the machine was suspended during the run",
    "host_effect": "the effect of the host on a metric exceeds the first limit",
    "metric_withheld": "the effect of the host on a metric exceeds the second limit",
    "all_metrics_withheld": "the effect of the host on every headline metric exceeds the second limit",
    "cpu_steal": "a hypervisor stole CPU time",
    "idle_removed": "idle time was shortened or removed",
    "times_scaled": "captured times were divided",
    "dependencies_inferred": "dependencies were inferred from times",
    "load_time_lower_bound": "more than 10 % of the I/Os of a dependent replay are read-ahead by threads without a "
                             "blocked time, or on a slower drive read-ahead that was in time on the captured one, "
                             "and whose use is not known",
    "used_by_mapping": "more than 10 % of the I/Os of a dependent replay are reads of mapped files whose use the "
                       "capture saw only by their mapping, and the drive is slower than the captured one",
    "read_ahead_differs": "more than 10 % of the I/Os of a dependent replay are read-ahead, and the kernel reads "
                          "another length ahead on this drive",
    "threads_asleep": "the threads of a dependent replay slept for more than 25 % of the time between their I/Os, and "
                      "the drive is not as fast as the captured one",
    "processors_busy": "the threads of a dependent replay waited for a processor for more than 25 % of the time "
                       "between their I/Os, and the drive is not as fast as the captured one",
    "ended_by_clock": "the load time leaves out the last I/Os: they came at least 2 % of it after all others, as a "
                      "thread slept by the clock before them, and the trace has others after them",
    "computing_unknown": "a dependent replay took less time than threads of the captured command computed meanwhile",
    "compute_scaled": "computing times were divided (--compute)",
    "background_slow": "a background (--background) wrote less than 95 % of the bytes due, or none were due",
    "slowdown_not_fitted": "the simulated drive was fitted to runs that do not show what writes cost these reads, "
                           "or wrote less than half as much (D)",
    "depth_not_fitted": "more than 5 % of the reads are among more than twice as many in flight as in the runs that "
                        "the simulated drive was fitted to (D)",
    "hazards": "I/Os on the same blocks were in flight together, unlike in the trace",
    "lost_events": "the capture lost events",
    "incomplete_capture": "the capture ended early, the kernel counted other I/Os, or I/Os completed whose issue was "
                          "not seen",
    "unseen_commands": "programs passed commands to the drive that a trace does not have",
    "coarse_times": "all submit times of the trace are multiples of 100 ms or more, and `import --clock-resolution` "
                    "overrode that",
    "unseen_completions": "the capture did not see more than 1 % of the completions, or the source records none",
    "altered_ios": "I/Os were changed to fit the drive",
    "compared_data": "compare commands found other data than was read before the run",
    "external_io_unknown": "external I/O could not be counted, as on a file or with iostats switched off",
    "cpu_throttled": "processors were throttled by heat",
    "drive_corrected_errors": "errors that the drive corrected",
    "drive_throttled": "the drive was throttled by heat",
    "drive_hot": "the drive was above its warning temperature",
    "power_not_measured": "power was not measured; a note unless a meter was given",
    # of an emulated drive
    "emulated_late": "more than 1 % of its I/Os completed late",
    "emulated_waited": "its server waited for a processor for more than 2 % of the time",
    "emulated_overhead": "4 KiB I/Os of its calibration took more than 5 % more or less than asked",
    "emulated_beyond": "this machine cannot reach a part of its description",
    "emulated_flushes": "its flushes held back other I/O for more than 2 % of the time",
    # of the records
    "no_completed_ios": "no I/O was seen to complete",
    "writer_fell_behind": "planned writes were due before the earlier ones had ended",
    "provider_limit": "a constant rate that the drive exceeded before; a note",
    "io_max": "a limit of a control group held back the I/O; a note of a trace",
    "stall": "no I/O completed in a whole second with I/O in flight; a note unless the drive is behind a network",
    # of several runs
    "few_runs": "fewer than 6 runs or repeats",
    "start_temperature": "the drive's temperature at the start differs between the runs",
    # of a benchmark
    "steps_failed": "steps failed",
    "no_measured_step": "no step has a role of the report",
    "not_finished": "steps were not run",
    "quick": "shortened benchmark",
    "scaled": "sizes of the benchmark were scaled to fit the drive",
    "different_traces": "steps replayed different traces",
    "not_steady": "no steady state was reached",
    "parameters_differ": "compared benchmarks have different parameters",
    # of files of earlier versions
    "recorded_verdict": "the verdict was recorded by a version without codes: fixed limits of lateness",
}


# Keys that are not required were added later: files of earlier versions do not have them.
class Reason(TypedDict, total=False):
    """metric: key of the metric concerned. value, limit: what `text` compares, times in ns, shares as fractions.

    None where there is none. steps: of a benchmark, the ids of the steps it applies to.
    """

    code: str
    level: Required[Level]
    metric: str | None
    value: float | None
    limit: float | None
    text: Required[str]
    steps: list[str]


class Note(TypedDict, total=False):
    """A fact that does not lower the level."""

    code: str
    text: Required[str]


class Verdict(TypedDict, total=False):
    """level: the worst of the reasons. withheld: keys of the metrics that must not be used."""

    level: Required[Level]
    reasons: Required[list[Reason]]
    notes: list[Note]
    withheld: list[str]


def enough(count: int, fraction: tuple[int, int]) -> bool:
    """Whether so many values have a percentile: n (1 - p) >= 10, in integers."""
    numerator, denominator = fraction
    return count * (denominator - numerator) >= ENOUGH_BEYOND * denominator


def reason(code: str, level: Level, text: str, metric: str | None = None, value: float | None = None,
           limit: float | None = None) -> Reason:
    assert code in CODES, code
    return {"code": code, "level": level, "metric": metric, "value": value, "limit": limit, "text": text}


def step_reason(code: str, level: Level, text: str, steps: Iterable[str] = ()) -> Reason:
    return {**reason(code, level, text), "steps": list(steps)}


def note(code: str, text: str) -> Note:
    assert code in CODES, code
    return {"code": code, "text": text}


def judged(reasons: Iterable[Reason], at_least: Level = "valid", notes: Iterable[Note] = (),
           withheld: Iterable[str] = ()) -> Verdict:
    """The worst level of the reasons and of `at_least`, the worst reasons first."""
    ordered = sorted(reasons, key=lambda reason: -LEVELS.index(reason["level"]))  # stable
    worst = max([at_least, *(ordered_reason["level"] for ordered_reason in ordered)], key=LEVELS.index)
    return {"level": worst, "reasons": ordered, "notes": list(notes), "withheld": sorted(set(withheld))}


def merged(verdicts: Iterable[Verdict], reasons: Iterable[Reason] = ()) -> Verdict:
    """The verdict on all of them together: the worst level, each reason and note once, and all withheld metrics.

    reasons: of the whole, in addition.
    """
    return merged_by_name([("", verdict) for verdict in verdicts], lambda text, names: text, reasons)


def merged_by_name(named: Iterable[tuple[str, Verdict]], words: Callable[[str, list[str]], str],
                   reasons: Iterable[Reason] = ()) -> Verdict:
    """As merged(), with the names of the verdicts that have a reason in its text.

    named: verdicts with their names. words(text, names): the text of a reason that the verdicts of these names have.
    """
    named = list(named)
    verdicts = [verdict for _, verdict in named]
    notes = [note for verdict in verdicts for note in verdict.get("notes", ())]
    first: dict[tuple[str, str], tuple[Reason, list[str]]] = {}
    for name, verdict in named:
        for reason in verdict["reasons"]:
            first.setdefault((reason["level"], reason["text"]), (reason, []))[1].append(name)
    distinct: dict[tuple[str, str], Reason] = {}
    shared = [cast(Reason, {**reason, "text": words(reason["text"], names)}) for reason, names in first.values()]
    for reason in (*shared, *reasons):
        distinct.setdefault((reason["level"], reason["text"]), reason)
    return judged(distinct.values(),
                  max((verdict["level"] for verdict in verdicts), key=LEVELS.index, default="valid"),
                  {note["text"]: note for note in notes}.values(),
                  (key for verdict in verdicts for key in verdict.get("withheld", ())))


def recorded(verdict: Mapping[str, Any] | None) -> Verdict:
    """A verdict as a file has it, in the present form. Reasons without a code get `recorded_verdict`, and a note."""
    verdict = verdict or {}
    reasons: list[Reason] = [cast(Reason, {**reason("recorded_verdict", own_reason["level"], own_reason["text"]),
                                           **own_reason})
                             for own_reason in verdict.get("reasons") or []]
    notes = list(verdict.get("notes") or [])
    if verdict and "withheld" not in verdict:
        notes.append(note("recorded_verdict", "verdict recorded by an earlier version, by fixed limits of lateness"))
    return judged(reasons, verdict.get("level", "valid"), notes, verdict.get("withheld") or ())
