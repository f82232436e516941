"""Results of every kind of test for any number of drives, derived from one small test of each kind."""

import copy
import math

import numpy as np
from made_once import made_once
from synthetic_tests import GIB, KIB, MIB, MS, SECOND, MadeTest, both, closed_loop, rows_of

from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.results.compared import compared

US = 1000
KINDS = ("mixed-burst", "mixes", "consistency", "depths", "qd1", "rounds", "trim", "cache", "trace", "trace-passes")
_POWER = (np.arange(-1, 30) * SECOND, [3.0] * 31)
_WRITER = {"number": 0, "name": "writer", "op": "write",
           "bursts": {"bytes": 4 * MIB, "every_ns": 2 * SECOND, "first_ns": 0, "count": None}}
# Figures that a faster drive has more or less of; all others are the same for each.
_RATES = ("mb_s", "iops", "mb_per_j", "kiops", "kiops_per_w", "score", "downside_score", "fast_bytes")
_TIMES = ("_ns",)


@made_once
def small_test(directory, kind, **more):
    """The directory of a small test of that kind, with power and whatever else its charts can show."""
    test = MadeTest(directory, kind, name=kind, **more)
    {"mixed-burst": _mixed_burst, "mixes": _mixes, "consistency": _consistency, "depths": _depths, "qd1": _qd1,
     "rounds": _rounds, "trim": _trim, "cache": _cache, "trace": _trace, "trace-passes": _trace_passes}[kind](test)
    return test.path


def _mixed_burst(test):
    for role, cost_ns in (("mixed", 3 * MS), ("baseline", MS)):
        reads = [rows_of(int(begin * SECOND) + np.arange(200) * cost_ns, cost_ns + (np.arange(200) % 50 == 7) * 9 * MS,
                         length_bytes=64 * KIB, burst=number, stream=1, due_ns=int(begin * SECOND))
                 for number, begin in enumerate((1, 5.2, 9.3))]
        writes = [rows_of(number * 2 * SECOND + np.arange(40) * 10 * MS, 10 * MS, op=1, length_bytes=MIB // 10,
                          burst=number, stream=0, due_ns=number * 2 * SECOND) for number in range(6)]
        test.step(role, {"state": "client", "repeat": 1}, both(*reads, *(writes if role == "mixed" else [])),
                  streams=[_WRITER], power=_POWER)


def _mixes(test):
    for state, slower in (("data", 1), ("full", 2)):
        for mix in range(100, -1, -10):
            test.step("mix", {"state": state, "mix": mix}, closed_loop(
                200, (100 + mix) * US * slower, 4, op=(np.arange(200) % 100 >= mix).astype(int)), power=_POWER)


def _consistency(test):
    per_second = np.where(np.arange(120) % 10 == 5, 40, 100)
    submit = np.concatenate([second * SECOND + np.arange(count) * (SECOND // count)
                             for second, count in enumerate(per_second)])
    for state in ("full", "full+op25"):
        test.step("consistency", {"state": state}, rows_of(submit, MS, op=1, due_ns=-1),
                  temperature=(np.arange(120) * SECOND, 30 + np.arange(120) / 10))


def _depths(test):
    for depth in (1, 2, 4, 8, 16, 32, 64, 128):
        test.step("depth", {"state": "enterprise", "depth": depth},
                  closed_loop(2000, 100 * US // min(depth, 16), depth), power=_POWER)


def _qd1(test):
    for access, op, block in (("random", "read", 4 * KIB), ("random", "write", 4 * KIB),
                              ("sequential", "read", 128 * KIB), ("sequential", "write", 128 * KIB)):
        test.step("qd1", {"state": "full", "access": access, "op": op, "block": block}, closed_loop(
            1500, 50 * US + block, op=int(op == "write"), length_bytes=block), power=_POWER)
        for power in (9, 12, 16, 20):
            test.step("blocks", {"state": "full", "access": access, "op": op, "block": 1 << power}, closed_loop(
                20, 50 * US + (1 << power), op=int(op == "write"), length_bytes=1 << power))
    for depth in (1, 4, 16):
        test.step("depth", {"state": "full", "depth": depth}, closed_loop(500, 100 * US // depth, depth))


def _rounds(test):
    for number in range(1, 9):
        test.step("round", {"state": "full", "round": number},
                  closed_loop(300, (100 if number > 3 else 60) * US, 4, op=1), power=_POWER)


def _trim(test):
    due = np.arange(40_000) * MS
    sizes = [size for size in (64 * MIB, 256 * MIB, GIB) for _ in range(3)]
    begins = np.arange(len(sizes)) * 4 * SECOND + SECOND
    latency = np.full(len(due), 100 * US)
    for begin, size in zip(begins, sizes, strict=True):
        latency[np.searchsorted(due, begin)] += 50 * US + size // 1000
    for state in ("data", "full"):
        test.step("extents", {"state": state}, both(
            rows_of(due, latency, due_ns=due, stream=0),
            rows_of(begins, [MS + size // 500 for size in sizes], op=3, length_bytes=sizes, stream=1)))
    for state, took in (("empty", SECOND), ("full", 8 * SECOND)):
        test.step("whole", {"state": state}, rows_of([0, took // 2], took // 2, op=3, length_bytes=2 * GIB),
                  do="discard")


def _cache(test):
    for rest_ns, fast in ((0, 3000), (30 * SECOND, 1000), (300 * SECOND, 2000)):
        test.step("fill", {"state": "fresh", "rest_ns": rest_ns}, closed_loop(
            4000, np.repeat([MS, 5 * MS], [fast, 4000 - fast]), op=1, length_bytes=MIB), power=_POWER)


def _trace(test):
    for state, slower in (("fresh", 1), ("full", 3)):
        test.step("trace", {"state": state}, closed_loop(3000, 100 * US * slower, 2, op=np.arange(3000) % 2),
                  power=_POWER)


def _trace_passes(test):
    for phase, slower in (("degrade", (1, 2, 3)), ("steady", (4, 4)), ("recovery", (3, 2))):
        for number, factor in enumerate(slower, 1):
            for trace, cost_ns in (("sample:game-load", 100 * US), ("sample:app-start", 40 * US)):
                test.step("trace", {"state": "full", "phase": phase, "pass_number": number, "trace": trace},
                          closed_loop(100, cost_ns * factor, 2, op=np.arange(100) % 2))


def another(document, number, factor):
    """The results of another drive, `factor` times as fast."""
    made = _faster(copy.deepcopy({key: document[key] for key in ("figures", "series")}), factor)
    drive = {**document["drive"], "model": f"Example {number}", "serial_hash": f"{number:08x}" * 8}
    return {**copy.deepcopy(document), **made, "label": f"Drive {number:02}", "drive": drive,
            "path": f"tests/{number:02}"}


def _faster(found, factor, key=""):
    if isinstance(found, dict):
        by = factor
        if "lines" in found:
            for line in found["lines"]:
                if found["of"].get("what") == "tail":
                    line["x"] = [int(value / by) for value in line["x"]]
                elif found["y"]["unit"] != "°C":
                    line["y"] = [value and value * by for value in line["y"]]
            return found
        return {name: _faster(value, factor, name) for name, value in found.items()}
    if isinstance(found, list):
        return [_faster(each, factor, key) for each in found]
    if isinstance(found, int | float) and not isinstance(found, bool):
        if key.endswith(_RATES):
            return found * factor
        if key.endswith("s_per_gb"):
            return found / factor
        if key.endswith(_TIMES) and key not in ("rest_ns", "round_ns", "at_ns"):
            return math.ceil(found / factor)
    return found


def fleet(document, count, repeats=1):
    """The comparison of so many drives, each tested so often, with some noise from test to test."""
    random = np.random.default_rng(1)
    documents = [another(document, number, (0.4 + 0.13 * number) * float(random.lognormal(0, 0.03)))
                 for number in range(1, count + 1) for _ in range(repeats)]
    for index, each in enumerate(documents):
        each["path"] = f"tests/{index:03}"
    return compared([each["path"] for each in documents], documents)


def single(tmp_path, kind, **more):
    return results_of(small_test(tmp_path / kind, kind, **more))
