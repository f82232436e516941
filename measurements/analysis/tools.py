"""The same figures by blkreel, pandas, DuckDB and btt, for speed.py.

    .venv/bin/python -m measurements.analysis.tools blkreel TRACE      prints figures as JSON

pandas and DuckDB compute figures that are simple in them: sums, busy time, bursts of reads, depth, seconds, threads,
percentiles. They omit the distributions of queue times, sizes and gaps, bursts of writes, the time at each depth,
sequential I/O, the timeline, the heat map, and the joining of parts.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

GAP_NS = 100_000_000
SECOND_NS = 10**9
CLASSES = ("read", "write", "other")
PERCENTILES = (50, 90, 99)


def blkreel(path):
    from blkreel.analysis.metrics.measure import measure
    partial = measure(path, GAP_NS, exact=False).partial
    figures = {"busy_ns": partial.busy_ns, "makespan_ns": partial.makespan_ns,
               "most_outstanding": partial.depth.maximum}
    for name, part in partial.classes().items():
        figures |= {f"{name}_ops": part.ops, f"{name}_bytes": part.bytes, f"{name}_service_ns": part.service_ns,
                    f"{name}_busy_ns": part.busy_ns}
    read = partial.read
    figures |= {f"read_p{p}_ns": read.latency.percentile((p, 100)) for p in PERCENTILES}
    figures |= {"read_bursts": len(read.bursts), "read_bursts_ns": read.bursts.makespan_ns,
                "most_reads_in_a_second": read.seconds.whole().maximum or 0,
                "most_bytes_of_a_thread": max(sums.read_bytes + sums.write_bytes
                                              for sums in partial.threads.sums.values())}
    return figures


def pandas(path):
    import pandas as pd
    columns = ["submit_ns", "latency_ns", "length_bytes", "op", "tid"]
    frame = pd.read_parquet(path, columns=columns)
    frame = frame[frame.latency_ns >= 0]
    complete_ns = frame.submit_ns + frame.latency_ns
    kind = frame.op.clip(upper=2)
    figures = {"busy_ns": _busy(frame.submit_ns, complete_ns),
               "makespan_ns": int(complete_ns.max() - frame.submit_ns.iloc[0])}
    for code, name in enumerate(CLASSES):
        mine = kind == code
        figures |= {f"{name}_ops": int(mine.sum()), f"{name}_bytes": int(frame.length_bytes[mine].sum()),
                    f"{name}_service_ns": int(frame.latency_ns[mine].sum()),
                    f"{name}_busy_ns": _busy(frame.submit_ns[mine], complete_ns[mine])}
    reads = frame[kind == 0]
    ended_ns = complete_ns[kind == 0]
    for p in PERCENTILES:
        figures[f"read_p{p}_ns"] = int(reads.latency_ns.quantile(p / 100, interpolation="lower"))
    reach_ns = ended_ns.cummax()
    burst = (reads.submit_ns - reach_ns.shift() > GAP_NS).cumsum()
    starts, ends = reads.submit_ns.groupby(burst).first(), ended_ns.groupby(burst).max()
    figures |= {"read_bursts": len(starts), "read_bursts_ns": int((ends - starts).sum())}
    seconds = ((ended_ns - frame.submit_ns.iloc[0]) // SECOND_NS).value_counts()
    figures["most_reads_in_a_second"] = int(seconds[seconds.index < figures["makespan_ns"] // SECOND_NS].max())
    figures["most_bytes_of_a_thread"] = int(frame[kind < 2].groupby("tid").length_bytes.sum().max())
    events = pd.concat([pd.DataFrame({"t": frame.submit_ns, "step": 1}), pd.DataFrame({"t": complete_ns, "step": -1})])
    events = events.sort_values(["t", "step"])
    figures["most_outstanding"] = int(events.step.cumsum().max())
    return figures


def _busy(submit_ns, complete_ns):
    reached = complete_ns.cummax().shift(fill_value=0).clip(lower=submit_ns)
    return int((complete_ns - reached).clip(lower=0).sum())


def duckdb(path):
    import duckdb as engine
    connection = engine.connect()
    connection.execute("SET threads = 1")
    connection.execute(f"""CREATE VIEW io AS SELECT submit_ns, submit_ns + latency_ns AS complete_ns, latency_ns,
        length_bytes, tid, least(op, 2) AS kind FROM read_parquet('{path}') WHERE latency_ns >= 0""")
    figures = {}
    for kind, ops, moved, service_ns in connection.execute(
            "SELECT kind, count(*), sum(length_bytes), sum(latency_ns) FROM io GROUP BY kind").fetchall():
        name = CLASSES[kind]
        figures |= {f"{name}_ops": ops, f"{name}_bytes": int(moved), f"{name}_service_ns": int(service_ns)}
    busy = """SELECT sum(greatest(0, complete_ns - greatest(submit_ns, coalesce(reach, submit_ns)))) FROM (
        SELECT submit_ns, complete_ns, max(complete_ns) OVER (ORDER BY submit_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach FROM io {})"""
    figures["busy_ns"] = _one(connection, busy.format(""))
    for code, name in enumerate(CLASSES):
        figures[f"{name}_busy_ns"] = _one(connection, busy.format(f"WHERE kind = {code}"))
    origin_ns = _one(connection, "SELECT min(submit_ns) FROM io")
    figures["makespan_ns"] = _one(connection, "SELECT max(complete_ns) FROM io") - origin_ns
    latencies_ns = connection.execute(f"SELECT quantile_disc(latency_ns, {[p / 100 for p in PERCENTILES]}) FROM io "
                                      "WHERE kind = 0").fetchone()[0]
    figures |= {f"read_p{p}_ns": value for p, value in zip(PERCENTILES, latencies_ns, strict=True)}
    figures["read_bursts"], length_ns = connection.execute(f"""
        WITH cut AS (SELECT submit_ns, complete_ns, max(complete_ns) OVER (ORDER BY submit_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach FROM io WHERE kind = 0),
        numbered AS (SELECT submit_ns, complete_ns, sum(CASE WHEN submit_ns - reach > {GAP_NS} THEN 1 ELSE 0 END)
            OVER (ORDER BY submit_ns ROWS UNBOUNDED PRECEDING) AS number FROM cut)
        SELECT count(*), sum(length) FROM (SELECT max(complete_ns) - min(submit_ns) AS length FROM numbered
            GROUP BY number)""").fetchone()
    figures["read_bursts_ns"] = int(length_ns)
    figures["most_reads_in_a_second"] = _one(connection, f"""SELECT max(n) FROM (SELECT count(*) AS n FROM io
        WHERE kind = 0 AND complete_ns - {origin_ns} < {figures['makespan_ns'] // SECOND_NS * SECOND_NS}
        GROUP BY (complete_ns - {origin_ns}) // {SECOND_NS})""")
    figures["most_bytes_of_a_thread"] = _one(connection, """SELECT max(n) FROM (
        SELECT sum(length_bytes) AS n FROM io WHERE kind < 2 GROUP BY tid)""")
    figures["most_outstanding"] = _one(connection, """SELECT max(depth) FROM (SELECT sum(step) OVER (ORDER BY t, step
        ROWS UNBOUNDED PRECEDING) AS depth FROM (SELECT submit_ns AS t, 1 AS step FROM io
        UNION ALL SELECT complete_ns, -1 FROM io))""")
    return figures


def _one(connection, query):
    return int(connection.execute(query).fetchone()[0])


def btt(path):
    """Latency from issue to completion of all I/Os. btt also computes tables that are not used here."""
    with tempfile.TemporaryDirectory() as directory:  # btt writes files to its working directory
        output = subprocess.run(["btt", "-i", Path(path).resolve()], capture_output=True, text=True, check=True,
                                cwd=directory).stdout
    match = re.search(r"^D2C\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)", output, re.MULTILINE)
    if not match:
        raise SystemExit("btt failed: no D2C in its output")
    return {"ops": int(match[4]), "mean_latency_s": float(match[2]), "longest_latency_s": float(match[3])}


TOOLS = {"blkreel": blkreel, "pandas": pandas, "DuckDB": duckdb, "btt": btt}

if __name__ == "__main__":
    print(json.dumps(TOOLS[sys.argv[1]](sys.argv[2])))
