"""The method section of a page: parameters, decisions, traces, and how to recompute figures."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blkreel.analysis.metrics.definitions.headline import EXPLAINED
from blkreel.analysis.metrics.definitions.metric import NS
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.analysis.report.columns import idle_words
from blkreel.analysis.report.verdict import Document
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import units
from blkreel.traces.format.condition import payload_words

# What every `recompute` may use.
PREAMBLE = """\
import json
import pandas as pd
import pyarrow.parquet as pq
run = json.loads(pq.read_metadata("RUN/records.parquet").metadata.get(b"blkreel.run", "null"))
t = pd.read_parquet("RUN/records.parquet")     # or the trace itself
t = t[t.latency_ns >= 0].copy()                # I/Os whose completion was seen
t["complete_ns"] = t.submit_ns + t.latency_ns
gap = 100_000_000                              # ns; see the parameters above
is_write = t.op.isin([1, 5])                   # 5: zone append
reads, writes, others = t[t.op == 0], t[is_write], t[(t.op > 0) & ~is_write]
data = t[(t.op == 0) | is_write]

def bursts(x):                                 # gaps include the idle time that the run removed
    removed = x.idle_removed_ns if "idle_removed_ns" in x else 0
    begin, end = x.submit_ns + removed, x.complete_ns + removed
    burst = (begin - end.cummax().shift(fill_value=begin.min()) > gap).cumsum()
    return x.groupby(burst).agg(start=("submit_ns", "min"), end=("complete_ns", "max"),
                                ops=("op", "size"), bytes=("length_bytes", "sum"))

def strays(x):
    b = bursts(x)
    return b[(b.ops < 16) & (b.bytes < 2**20)]

def makespan(b):
    return (b.end - b.start).sum()

def busy(x):
    reach = x.complete_ns.cummax().shift(fill_value=x.submit_ns.min())
    return (x.complete_ns - x.submit_ns.where(x.submit_ns > reach, reach)).clip(lower=0).sum()

def wait(x):                                   # 65536: the queue was full
    full = ((x["flags"] & 65536) != 0) & (x.due_ns >= 0) if "due_ns" in x else pd.Series(False, x.index)
    s = x.submit_ns.where(~full, x.due_ns.clip(lower=x.submit_ns - 60 * 10**9, upper=x.submit_ns) if full.any() else 0)
    x = pd.DataFrame({"s": s, "complete_ns": x.complete_ns}).sort_values("s")
    reach = x.complete_ns.cummax().shift(fill_value=x.s.min())
    return (x.complete_ns - x.s.where(x.s > reach, reach)).clip(lower=0).sum()

def idle(x):                                   # nothing outstanding for longer than the gap
    gaps = x.submit_ns - x.complete_ns.cummax().shift(fill_value=x.submit_ns.min())
    return gaps[gaps > gap].sum()

def percentile(x, per_mille):                  # nearest rank
    return x.sort_values().iloc[-(-len(x) * per_mille // 1000) - 1]"""


@dataclass(frozen=True)
class Definition:
    """One line of the page's list of formulas. recompute: a pandas expression, after the preamble."""

    key: str
    title: str
    unit: str
    formula: str
    recompute: str


# Over runs: `a` and `b` are the values of one figure, one a run, of two drives. A test holds these against the report.
STATISTICS_PREAMBLE = """\
import numpy as np
from scipy import stats
a, b = np.log([...]), np.log([...])            # the figure of each run of the base, and of the other drive

def of_difference(level=0.95):
    test = stats.ttest_ind(b, a, equal_var=False)
    return test, test.confidence_interval(level)"""

STATISTICS = [
    Definition("value", "Value over runs", "of the figure", "geometric mean of the runs: exp(mean(ln x))",
               "np.exp(a.mean())"),
    Definition("low", "Interval, low", "of the figure",
               "exp(m − t(0.975, n − 1) s / √n), m and s the mean and the standard deviation (n − 1) of ln x",
               "np.exp(stats.t.interval(0.95, len(a) - 1, a.mean(), stats.sem(a))[0])"),
    Definition("high", "Interval, high", "of the figure", "exp(m + t(0.975, n − 1) s / √n)",
               "np.exp(stats.t.interval(0.95, len(a) - 1, a.mean(), stats.sem(a))[1])"),
    Definition("ratio.value", "Ratio of two drives", "×", "exp(mean(ln b) − mean(ln a))",
               "np.exp(b.mean() - a.mean())"),
    Definition("ratio.low", "Ratio, low", "×",
               "exp(d − t(0.975, df) √(ua + ub)), u = s²/n of each, df = (ua + ub)² / (ua²/(na − 1) + ub²/(nb − 1))",
               "np.exp(of_difference()[1].low)"),
    Definition("ratio.high", "Ratio, high", "×", "exp(d + t(0.975, df) √(ua + ub))", "np.exp(of_difference()[1].high)"),
]

DECISIONS = [
    ("Burst", "A new burst of an op class starts where submit − max(earlier complete) > gap. The gap is a choice: "
              "{gap}. Idle time that the run removed before an I/O counts as part of the gap. Rows that a workload "
              "labeled belong to the burst of their label."),
    ("Strays", "Bursts of fewer than 16 ops and under 1 MiB are listed apart, and stay in every sum."),
    ("Read throughput under background writes", "Bytes of all reads of a run that holds writes / read wait. The "
     "writer “fell behind” where less than 99 % of the bytes were written by the time the last write was due, and the "
     "lag is above 100 ms and the mean distance of planned bursts; where a planned burst was due before all earlier "
     "ones had ended; or where less than 99 % of the offered bytes were written. A planned burst starts where "
     "due − max(earlier due) > gap."),
    ("Percentiles", "Nearest rank in integers, nothing interpolated; shown only if at least 10 I/Os lie beyond "
     "(n (1 − p) ≥ 10). Runs are pooled I/O by I/O; percentiles are never averaged."),
    ("Unseen completions", "I/Os whose completion was never seen are counted apart and are in no other figure. I/Os "
     "that failed are in the figures, and make a run invalid."),
    ("Average data rate", "Reads and writes count as data; flushes and discards count towards busy time only."),
    ("Consistency", "Over whole seconds since the first submit; a last, cut-off second is left out. The upper "
     "quartile is by nearest rank."),
    ("Repetitions", "The unit of repetition is a whole run. Fewer than 6 runs give no interval; with several, times "
     "and rates are geometric means and the smallest and largest run stand beside them."),
    ("Intervals", "95 %, of the geometric mean over runs: a t interval on ln(x); from 51 runs on by resampling (BCa, "
     "9,999 sets, always the same). Beside a percentile, which is pooled, stands the interval of the runs' own."),
    ("Ties", "Two drives differ in a figure only if the 95 % Welch interval of their ratio excludes 1, the effect "
     "exceeds 2 %, and p < 0.05 after Holm's adjustment: over all pairs in the leading figures of the pace as one "
     "family, over all pairs in the other figures as a second; of figures with the same ranking, such as read wait and "
     "read throughput, one takes part. From the best down, a drive shares "
     "the rank of the one before it, unless one of those that share it is better than it."),
    ("Units", "MB = 10⁶ bytes, MiB = 2²⁰ bytes; all times are integer nanoseconds of one monotonic clock."),
]


def method_of(document: Document, sections: list[Document]) -> dict[str, Any]:
    """The fields of a Page about the method."""
    sure = any(entry["n"] >= ENOUGH_RUNS for section in sections for entry in section["entries"])
    gap_ns = document["parameters"]["burst_gap_ns"]
    gap = units.setting(gap_ns)
    return {"parameters": tuple([("Burst gap", gap), *_sources(sections), *_runs(sections)]),
            "decisions": decisions(gap),
            "definitions": (*definitions(), *(STATISTICS if sure else ())),
            "preamble": PREAMBLE.replace(f"{DEFAULT_GAP_NS:_}", f"{gap_ns:_}") + (
                f"\n\n{STATISTICS_PREAMBLE}" if sure else "")}


def decisions(gap: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, text.format(gap=gap)) for name, text in DECISIONS)


def definitions() -> tuple[Definition, ...]:
    """Of the metrics that a page explains."""
    return tuple(Definition(metric.key, metric.title,
                            "ns, shown as µs, ms or s" if metric.unit is NS else metric.unit.symbol,
                            metric.formula, metric.recompute) for metric in EXPLAINED)


def _sources(sections: list[Document]) -> Iterator[tuple[str, str]]:
    sources: dict[str, Document] = {}
    for section in sections:
        source = section["source"]
        sources.setdefault(source["sha256"] or source["path"], source)
    for source in sources.values():
        words = [source["path"]]
        if source["rows"] is not None:
            words.append(f"{units.counted(source['rows'], 'I/O')}")
        if source["duration_ns"] is not None:
            words.append(units.duration(source["duration_ns"]))
        if source["sha256"]:
            words.append(f"SHA-256 {source['sha256']}")
        if source["command"]:
            words.append(f"captured from: {source['command']}")
        if source["programs"]:
            words.append(f"I/O of {', '.join(source['programs'])}")
        if source["lost_events"]:
            words.append(f"the capture lost {units.counted(source['lost_events'], 'event')}")
        yield "Trace", "; ".join(str(word) for word in words if word)


def _runs(sections: list[Document]) -> Iterator[tuple[str, str]]:
    """Idle handling, written data and paths of the runs of each entry."""
    for section in sections:
        for entry in section["entries"]:
            runs = ", ".join(run["path"] for run in entry["runs"])
            idle = f"idle {idle_words(entry['idle'])}; " if entry["idle"] else ""
            data = payload_words(entry["payload"])
            data = f"data written {data}; " if data else ""
            yield f"{section['title']}, {entry['label']}", f"{idle}{data}n={entry['n']}: {runs}"
