"""Who shares a rank: sound whatever the runs, and right about drives of which the truth is known."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.definitions.headline import leading_metrics
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.report import document, terminal
from blkreel.analysis.report.page import method
from blkreel.analysis.stats.ranking import pairs, ranked
from blkreel.common.console import Detail
from blkreel.traces.format.schema import OPS

MS = 1_000_000
drives = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.lists(
    st.floats(50, 200).map(lambda value: round(value, 1)), min_size=6, max_size=9), min_size=1, max_size=7)


def ranks(runs, higher=False):
    found = pairs({"wait": runs})
    differ = {frozenset((pair.base, pair.other)) for pair in found if pair.differ}
    return ranked(runs, differ, higher), differ


@cases(20)
@given(drives, st.booleans(), st.randoms())
def test_ranks_are_sound(runs, higher, random):
    places, differ = ranks(runs, higher)
    mean = {key: math.exp(np.log(own).mean()) for key, own in runs.items()}
    for one in runs:
        for other in runs:
            pair = frozenset((one, other))
            if pair in differ:
                better = max(pair, key=mean.get) if higher else min(pair, key=mean.get)
                (worse,) = pair - {better}
                assert places[better].rank < places[worse].rank, "one that is better stands before"
            elif one != other:
                assert other in places[one].ties
            if one != other and places[one].rank == places[other].rank:
                assert other in places[one].ties, "all that share a rank tie"
    assert min(place.rank for place in places.values()) == 1
    for place in places.values():
        assert place.rank == 1 + sum(other.rank < place.rank for other in places.values())
    shuffled = list(runs.items())
    random.shuffle(shuffled)
    again, _ = ranks(dict(shuffled), higher)
    assert {key: place.rank for key, place in again.items()} == {key: place.rank for key, place in places.items()}


def spread(center, reach, count=6):
    """Runs of which mean and deviation (of logarithms) are exactly these."""
    logs = np.linspace(-1, 1, count)
    return (center * np.exp(logs / logs.std(ddof=1) * reach)).tolist()


def test_ties_are_not_transitive_and_nobody_is_wronged():
    runs = {"tight": spread(100, .005), "near": spread(106, .005), "wide": spread(112, .2)}
    places, _ = ranks(runs)
    assert {key: place.rank for key, place in places.items()} == {"tight": 1, "near": 2, "wide": 2}
    assert places["wide"].ties == ("tight", "near") and places["tight"].ties == ("wide",)
    # The best is so uncertain that it ties with all, which does not make the others equal.
    runs = {"wide": spread(99, .2), "tight": spread(100, .005), "worse": spread(110, .005)}
    assert {key: place.rank for key, place in ranks(runs)[0].items()} == {"wide": 1, "tight": 1, "worse": 3}


def test_a_metric_of_the_same_question_has_its_own_size_and_the_same_test():
    """What a drive adds may grow by a fifth where the load, of computing for the most part, takes 0.5 % longer."""
    load = {"old": spread(5250, .0001), "new": spread(5276, .0001)}
    added = {key: [value - 5120 for value in values] for key, values in load.items()}
    (alone,) = pairs({"load": load})
    of_load, of_added = pairs({"load": load, "added": added}, {"added": "load"})
    assert of_load == alone and not of_load.differ and of_load.why.startswith("under 2 %")
    assert of_added.differ and of_added.p == of_load.p and of_added.value == pytest.approx(1.2, abs=.01)


def test_what_nobody_would_notice_is_no_difference():
    (pair,) = pairs({"wait": {"a": spread(100, .001), "b": spread(101.9, .001)}})
    assert pair.ratio.excludes_one and not pair.differ and pair.why == "under 2 % apart"
    (pair,) = pairs({"wait": {"a": spread(100, .001), "b": spread(102.1, .001)}})
    assert pair.differ and pair.why == ""


def test_too_few_runs_are_not_ranked_and_say_so():
    runs = {"a": spread(100, .01), "b": spread(150, .01, 5), "c": spread(200, .01)}
    found = {(pair.base, pair.other): pair for pair in pairs({"wait": runs})}
    assert found["a", "b"].differ is None and "n=5" in found["a", "b"].why and found["a", "b"].ratio is None
    assert found["a", "b"].value == pytest.approx(1.5)
    places, _ = ranks(runs)
    assert places["b"].rank is None and places["b"].ties == () and places["c"].rank == 2
    assert pairs({"wait": {"a": [1.0] * 6, "b": [0.0] + [1.0] * 5}})[0].why.startswith("a run lacks")


def test_many_comparisons_are_held_together():
    """One pair whose interval excludes 1 by little, among many that say nothing."""
    runs = {f"d{index}": spread(100, .03) for index in range(8)}
    alone = pairs({"wait": {"d0": runs["d0"], "odd": spread(104.6, .03)}})
    assert alone[0].differ
    found = [pair for pair in pairs({"wait": {**runs, "odd": spread(104.6, .03)}}) if "odd" in (pair.base, pair.other)]
    assert not any(pair.differ for pair in found) and all("Holm" in pair.why for pair in found)
    assert all(pair.ratio.excludes_one for pair in found)


# Drives of which the truth is known, through the document that a user sees.

def one_run(random, slower, label, spread=.03):
    """1000 reads in four bursts beside a writer. The whole run has a speed of its own, as runs have: `spread`."""
    speed = slower * math.exp(random.normal(0, spread))
    read_ns = np.repeat(np.arange(4), 250) * 1000 * MS + np.tile(np.arange(250), 4) * MS + 1000
    rows = {"submit_ns": np.concatenate([read_ns, np.arange(200) * 20 * MS + 1000]),
            "latency_ns": np.concatenate([random.lognormal(0, .4, 1000) * 2 * MS * speed,
                                          random.lognormal(0, .4, 200) * 5 * MS * speed]).astype(np.int64),
            "op": np.repeat([OPS["read"], OPS["write"]], [1000, 200]).astype(np.int8)}
    order = np.argsort(rows["submit_ns"], kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    count = len(order)
    rows |= {"queue_ns": np.full(count, -1), "length_bytes": np.full(count, 65_536), "flags": np.zeros(count, np.int32),
             "status": np.zeros(count, np.int16), "due_ns": rows["submit_ns"] - 1000,
             "burst": np.full(count, -1, np.int32)}
    metrics = MetricsAccumulator()
    metrics.feed(rows)
    run = {"label": label, "source": {"sha256": "5e" * 32}, "pace": {"name": "original"},
           "idle": {"name": "original", "cap_ns": None}, "drive": {"model": label},
           "verdict": {"level": "valid", "reasons": [], "notes": [], "withheld": []}}
    return Measured(Path(label), {"run": run}, count, metrics.finish())


@cache
def some_runs(slower, spread):
    """Eighty runs of one drive: each trial draws its own of them, none twice."""
    random = np.random.default_rng(int(slower * 1000 + spread * 1e6))
    return [one_run(random, slower, "", spread) for _ in range(80)]


def trial(seed, slower, runs, spread=.03):
    """The section of a comparison of drives that are so many times slower than the first."""
    random = np.random.default_rng(seed)
    left = {factor: random.permutation(80).tolist() for factor in slower}
    measured = []
    for index, factor in enumerate(slower):
        for _ in range(runs):
            run = some_runs(factor, spread)[left[factor].pop()]
            own = {**run.metadata["run"], "label": f"drive {index}", "drive": {"model": f"drive {index}"}}
            measured.append(replace(run, metadata={"run": own}))
    doc, _ = document.comparison(measured)
    return doc["sections"][0]


def test_a_drive_compared_with_itself_ties():
    """In every figure that a comparison leads with, in at least 95 % of the trials."""
    trials = [trial(seed, [1] * 4, 6, .02)["entries"] for seed in range(20)]
    leading = leading_metrics(["original"])
    tied = [all(entry["headline"][metric.key]["rank"] == 1 for entry in entries for metric in leading)
            for entries in trials]
    assert sum(tied) >= 19


def test_a_tenth_slower_is_found():
    """With six runs of 3 % spread each: the wait, of which that is the truth."""
    found = [trial(seed, [1, 1.1], 6) for seed in range(16)]
    ranks = [[entry["headline"]["read_service_time"]["rank"] for entry in section["entries"]] for section in found]
    assert ranks.count([1, 2]) >= 13 and [2, 1] not in ranks
    ten = [trial(seed, [1, 1.1], 10) for seed in range(8)]
    assert all(section["entries"][1]["headline"]["read_service_time"]["rank"] == 2 for section in ten)


def test_document_says_how_sure_it_is():
    section = trial(1, [1, 1.5], 6, .01)
    fast, slow = section["entries"]
    service = slow["headline"]["read_service_time"]
    assert service["low"] < service["value"] < service["high"]
    assert service["interval"] == "95 % t interval on ln, 6 runs"
    assert service["rank"] == 2 and service["ties"] == [] and fast["headline"]["read_service_time"]["rank"] == 1
    assert slow["headline"]["write_p99"]["rank"] is None
    (ratio,) = [one for one in section["ratios"] if one["figure"] == "read_service_time"]
    assert (ratio["base"], ratio["other"], ratio["differ"]) == ("drive 0", "drive 1", True)
    assert ratio["low"] < ratio["value"] < ratio["high"] and ratio["value"] == pytest.approx(1.5, rel=.05)
    few = trial(1, [1, 1.5], 5, .01)
    assert few["entries"][0]["headline"]["read_wait"]["low"] is None
    assert all(one["differ"] is None and "n=5" in one["why"] for one in few["ratios"])


def test_terminal_says_who_ties_and_how_far_apart_the_others_are():
    random = np.random.default_rng(3)
    doc, _ = document.comparison([one_run(random, slower, label, .01) for slower, label in (
        (1, "A"), (1, "B"), (1.5, "C")) for _ in range(6)] + [one_run(random, 2, "D", .01)])
    shown = "\n".join(terminal.comparison_lines(doc, Detail(everything=True), 200))
    assert "Read response p99: 1 A, B (tie); 3 C; without a rank" in shown
    assert "C against A, read response p99: +5" in shown and "%), they differ" in shown
    assert "B against A, read wait: " in shown and "a tie: the interval of the ratio holds 1" in shown
    service = doc["sections"][0]["entries"][2]["headline"]["read_service_time"]
    low, high = (service[key] / 1e9 for key in ("low", "high"))
    assert f"({low:.2f} to {high:.2f})" in shown and "In brackets: 95 % interval" in shown


def test_published_recipes_give_the_intervals_of_the_report():
    section = trial(2, [1, 1.2], 7, .02)
    runs = [[run["figures"]["read"]["service_ns"] for run in entry["runs"]] for entry in section["entries"]]
    given = f"np.log({runs[0]}), np.log({runs[1]})"
    preamble = method.STATISTICS_PREAMBLE.replace("np.log([...]), np.log([...])", given)
    names = {}
    exec(preamble, names)
    (ratio,) = [one for one in section["ratios"] if one["figure"] == "read_service_time"]
    shown = {**section["entries"][0]["headline"]["read_service_time"], **{f"ratio.{key}": ratio[key] for key in ratio}}
    for definition in method.STATISTICS:
        expected = float(eval(definition.recompute, names))
        assert shown[definition.key] == pytest.approx(expected, rel=1e-9), definition.key
