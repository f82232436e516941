"""Sections of a comparison's document with only what its answer is made of."""

from blkreel.analysis.metrics.definitions.registry import METRICS

MS = 1_000_000


def figures_of_run(wait_ns):
    return {"read": {"wait_ns": wait_ns, "bursts": {"makespan_ns": wait_ns}}}


def entry(label, wait_ms, rank=None, ties=(), *, n=6, level="valid", p99_ms=None, withheld=False, reasons=()):
    def figure(value, rank=None, ties=()):
        return {"value": value, "low": None, "high": None, "smallest": None, "largest": None, "rank": rank,
                "ties": list(ties)}

    headline = {metric: figure(None) for metric in METRICS}
    headline["read_wait"] = figure(wait_ms and wait_ms * MS, rank, ties)
    headline["read_p99"] = figure(p99_ms and p99_ms * MS)
    return {"label": label, "n": n, "pace": {"name": "original"},
            "verdict": {"level": level, "reasons": list(reasons), "withheld": ["read_wait"] if withheld else []},
            "headline": headline, "runs": [{"figures": figures_of_run(wait_ms and wait_ms * MS)}] * n}


def ratio(base, other, value, differ, figure="read_wait", low=None, high=None):
    return {"figure": figure, "base": base, "other": other, "value": value, "low": low or value * 0.99,
            "high": high or value * 1.01, "p": 0.001, "differ": differ, "why": "" if differ else "interval holds 1"}


def section(*entries, ratios=(), title="Game load"):
    return {"title": "Original timing", "pace": {"name": "original"}, "entries": list(entries), "ratios": list(ratios),
            "source": {"title": title, "path": "game.parquet"}}
