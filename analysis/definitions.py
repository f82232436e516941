"""What each figure means: its name, unit, formula, and how to recompute it from the Parquet file with plain pandas.

The page shows these, and a test runs every `recompute` and holds it against the figure of the report.
"""

from dataclasses import dataclass

# What every `recompute` may use.
PREAMBLE = """\
import pandas as pd
t = pd.read_parquet("RUN/records.parquet")     # or the trace itself
t = t[t.latency_ns >= 0].copy()                # I/Os whose completion was seen
t["complete_ns"] = t.submit_ns + t.latency_ns
gap = 100_000_000                              # ns; see the parameters above
reads, writes = t[t.op == 0], t[t.op == 1]

def bursts(x):
    reach = x.complete_ns.cummax().shift(fill_value=x.submit_ns.min())
    burst = (x.submit_ns - reach > gap).cumsum()
    return x.groupby(burst).agg(start=("submit_ns", "min"), end=("complete_ns", "max"),
                                ops=("op", "size"), bytes=("length_bytes", "sum"))

def makespan(b):
    return (b.end - b.start).sum()

def busy(x):
    reach = x.complete_ns.cummax().shift(fill_value=x.submit_ns.min())
    return (x.complete_ns - x.submit_ns.where(x.submit_ns > reach, reach)).clip(lower=0).sum()

def percentile(x, per_mille):                  # nearest rank
    return x.sort_values().iloc[-(-len(x) * per_mille // 1000) - 1]"""


@dataclass(frozen=True)
class Definition:
    """key: where it stands in the document, below `figures` (or `headline` for what a comparison leads with)."""

    key: str
    title: str
    unit: str
    formula: str
    recompute: str


HEADLINE = {
    "read_throughput_mb_s": Definition(
        "read.bursts.throughput_mb_s", "Read throughput", "MB/s",
        "burst throughput of the reads: Σ bytes of the read bursts / Σ of their makespans; idle time between bursts is "
        "not counted. Under background writes where the run holds writes",
        "bursts(reads).bytes.sum() / makespan(bursts(reads)) * 1000"),
    "wait_ns": Definition(
        "read.bursts.makespan_ns", "Wait time", "time",
        "Σ makespans of the read bursts: how long a person would sit there",
        "makespan(bursts(reads))"),
    "read_service_ns": Definition(
        "read.service_ns", "Total service time of reads", "time",
        "Σ (complete − submit) over the reads; with two outstanding it is about twice the time a person waits",
        "reads.latency_ns.sum()"),
    "read_latency_p50_ns": Definition(
        "read.latency.p50_ns", "Read latency, p50", "time",
        "nearest rank, x[⌈n p⌉ − 1] of the sorted latencies (complete − submit)",
        "percentile(reads.latency_ns, 500)"),
    "read_latency_p99_ns": Definition(
        "read.latency.p99_ns", "Read latency, p99", "time", "as p50, with p = 0.99",
        "percentile(reads.latency_ns, 990)"),
    "read_response_p99_ns": Definition(
        "read.response.p99_ns", "Read response, p99", "time",
        "nearest rank of complete − due: a stall is charged to every I/O that it delays",
        "percentile((reads.complete_ns - reads.due_ns)[reads.due_ns >= 0], 990)"),
    "write_throughput_mb_s": Definition(
        "write.bursts.throughput_mb_s", "Write throughput", "MB/s", "burst throughput of the writes",
        "bursts(writes).bytes.sum() / makespan(bursts(writes)) * 1000"),
    "lateness_p99_ns": Definition(
        "lateness.p99_ns", "Lateness, p99", "time",
        "nearest rank of submit − due over all timed I/Os: how late the replay itself was",
        "percentile((t.submit_ns - t.due_ns)[t.due_ns >= 0], 990)"),
}

# The figures that drives are ranked by. Lateness is not the drive's.
BETTER = {name: "higher" if name.endswith("_mb_s") else "lower" for name in HEADLINE if name != "lateness_p99_ns"}
# What a comparison leads with: one family of questions (ranking.py).
LEADING = ("wait_ns", "read_throughput_mb_s", "read_service_ns")

FIGURES = [
    *HEADLINE.values(),
    Definition("read.busy_ns", "Busy time of reads", "time",
               "measure of the union of [submit, complete): time with at least one read outstanding", "busy(reads)"),
    Definition("all.makespan_ns", "Makespan", "time", "max(complete) − min(submit)",
               "t.complete_ns.max() - t.submit_ns.min()"),
    Definition("all.mean_busy_depth", "Mean busy depth", "I/Os", "Σ (complete − submit) / busy time",
               "t.latency_ns.sum() / busy(t)"),
    Definition("all.data_rate_by_busy_mb_s", "Average data rate by busy time", "MB/s",
               "(bytes read + bytes written) / busy time",
               "t[t.op < 2].length_bytes.sum() / busy(t) * 1000"),
    Definition("all.data_rate_by_wall_mb_s", "Average data rate by wall time", "MB/s",
               "(bytes read + bytes written) / makespan",
               "t[t.op < 2].length_bytes.sum() / (t.complete_ns.max() - t.submit_ns.min()) * 1000"),
    Definition("read.waiting.p50_ns", "Latency-weighted median of reads", "time",
               "smallest x with Σ(l where l ≤ x) ≥ ½ Σ l: half of all waiting was spent in reads up to x",
               "(lambda l: l[l.cumsum() >= -(-l.sum() // 2)].iloc[0])(reads.latency_ns.sort_values())"),
    Definition("lateness.host.p99_ns", "Lateness by the host, p99", "time",
               "submit − due of I/Os that found room in the queue (flag 65536 not set)",
               "percentile((t.submit_ns - t.due_ns)[(t.due_ns >= 0) & (t[\"flags\"] & 65536 == 0)], 990)"),
]

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
              "{gap}. Rows that a workload labelled belong to the burst of their label."),
    ("Strays", "Bursts of fewer than 16 ops and under 1 MiB are listed apart, and stay in every sum."),
    ("Read throughput under background writes", "The burst throughput of all reads of a run that holds writes. The "
     "writer “fell behind” where a planned write burst was due before all earlier ones had ended, or where less than "
     "99 % of the offered bytes were written; a planned burst starts where due − max(earlier due) > gap."),
    ("Percentiles", "Nearest rank in integers, nothing interpolated; shown only if at least 10 I/Os lie beyond "
     "(n (1 − p) ≥ 10). Runs are pooled I/O by I/O; percentiles are never averaged."),
    ("I/Os without completion", "Counted apart and in no other figure. I/Os that failed are in the figures, and make a "
     "run invalid."),
    ("Average data rate", "Reads and writes count as data; flushes and discards count towards busy time only."),
    ("Consistency", "Over whole seconds since the first submit; a last, cut-off second is left out. The median is by "
     "nearest rank."),
    ("Repetitions", "The unit of repetition is a whole run. Fewer than 6 runs give no interval; with several, times "
     "and rates are geometric means and the smallest and largest run stand beside them."),
    ("Intervals", "95 %, of the geometric mean over runs: a t interval on ln(x); from 20 runs on by resampling (BCa, "
     "9,999 sets, always the same). Beside a percentile, which is pooled, stands the interval of the runs' own."),
    ("Ties", "Two drives differ in a figure only if the 95 % Welch interval of their ratio excludes 1, the effect "
     "exceeds 2 %, and p < 0.05 after Holm's adjustment: over all pairs in wait time, read throughput and total "
     "service time as one family, over all pairs in the other figures as a second. From the best down, a drive shares "
     "the rank of the one before it, unless one of those that share it is better than it."),
    ("Units", "MB = 10⁶ bytes, MiB = 2²⁰ bytes; all times are integer nanoseconds of one monotonic clock."),
]


def figure_at(figures: dict, key: str):
    """The figure under a dotted key."""
    for part in key.split("."):
        figures = figures[part]
    return figures


def headline(figures: dict) -> dict:
    """The figures that a comparison leads with, by the names of HEADLINE."""
    shown = {name: figure_at(figures, definition.key) for name, definition in HEADLINE.items()}
    if not figures["read"]["ops"]:
        shown["wait_ns"] = shown["read_service_ns"] = None  # nobody waited, because nobody read
    return shown
