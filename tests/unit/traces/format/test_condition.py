"""The condition of a run: no input of a result is missing from it."""

import copy
import itertools
from dataclasses import asdict, fields, replace

import pytest

from blkreel.replay.streams.spec import StreamSpec
from blkreel.traces.format.condition import Condition, Role, differences
from blkreel.traces.format.metadata_types import Run

# Keys of a run's account that Condition reads, and its results. A new key needs a place here, and an input one in
# Condition.
INPUTS = {"source", "pace", "idle", "without", "map", "state", "prefill", "payload", "polled", "passthrough", "drives",
          "unwritten_bytes", "background"}
RESULTS = {
    "label", "simulated", "drive", "planned_ops", "issued_ops", "completed_ops", "moved_bytes", "written_bytes",
    "error_ops", "errors", "first_error", "as_planned", "altered", "dropped", "hazards", "compares",
    "compared_bytes", "compares_unequal", "left_out", "plan_ns",
    "wall_ns", "own_wall_ns", "reads", "baseline", "zero_latency", "drift_ns", "lateness", "underruns", "record_stalls",
    "certificate", "host_effect", "engine", "foreign_ios", "arrays", "page_cache", "telemetry", "partial", "started_at",
    "environment", "emulated", "seed", "latency_log", "verdict", "other_phases",
    "compute_curve", "write_flags", "fitted"}

RUN = {
    "source": {"sha256": "5e" * 32, "path": "game.parquet", "device": 0},
    "pace": {"name": "dependent", "depth": None, "factor": None, "dependencies": "observed", "threads": {"count": 1},
             "streams": {}},
    "idle": {"name": "original", "cap_ns": None}, "without": [], "map": {"name": "tile", "copies": 8},
    "state": {"name": "data", "scale": 1.0, "span_bytes": 40_000_000, "permuted": False, "erased_by": "discard",
              "payload": {"compressible_percent": 0, "duplicates_percent": 0}},
    "prefill": None, "unwritten_bytes": 0, "payload": {"compressible_percent": 0, "duplicates_percent": 0},
    "polled": False, "passthrough": False, "drives": None, "background": None}

# Of two drives.
DRIVES = [{"source_device": device, "map": {"name": "identity"}, "state": {"name": "full"}} for device in (0, 1)]
# The streams of a step of a benchmark, which has no trace.
STREAM = asdict(StreamSpec(0, "read", "read", "random", 4096, 0, 1 << 30, 4, seed=1, read_percent=100))
STREAMS = [STREAM, *({**STREAM, **other} for other in (
    {"op": "write", "read_percent": 0}, {"read_percent": 70}, {"access": "sequential"}, {"block_bytes": 8192},
    {"start_bytes": 4096}, {"span_bytes": 1 << 29}, {"volume_bytes": 1 << 20}, {"rate_iops": 100.0},
    {"every_ns": 10**6}, {"bursts": {"bytes": 1 << 20, "every_ns": 10**9}},
    {"bursts": {"bytes": 1 << 20, "every_ns": 10**8}}, {"lengths_bytes": [4096, 8192]}, {"background": True}))]
GENERATED = {"sha256": None, "path": "qd1", "device": None, "duration_ns": 10**9}
BACKGROUND = {"spec": "download.parquet", "sha256": "6f" * 32, "lead_ns": 10**10, "phase": 0.0}

# (path of a value in the account, other values of it)
VALUES = [
    (("source", "sha256"), ["6f" * 32]), (("source", "device"), [1, 2]),
    (("source",), [*({**GENERATED, "streams": [stream]} for stream in STREAMS),
                   {**GENERATED, "streams": [STREAM, STREAM]}, {**GENERATED, "streams": [STREAM], "duration_ns": 10**8},
                   *({"path": "s3://bucket/t.parquet", "rows": rows, "duration_ns": 5} for rows in (7, 8))]),
    (("pace", "name"), ["original", "asap"]),
    (("pace", "compute"), [2, 4, 4.0000001, "none"]),
    (("pace",), [{"name": "scaled", "factor": 2}, {"name": "scaled", "factor": 2.0000001},
                 {"name": "scaled", "factor": 0.5}, {"name": "depth", "depth": 1}, {"name": "depth", "depth": 4}]),
    (("pace", "dependencies"), ["inferred"]), (("pace", "threads", "count"), [2, 8]),
    (("pace", "streams"), [{"1": {"name": "depth", "depth": 4, "factor": None}}]),
    (("idle", "cap_ns"), [25_000_000, 25_001_000, 5_000_000]), (("without",), [["writes"]]),
    (("map", "name"), ["compact"]),
    (("map", "copies"), [2, 4]), (("state", "name"), ["client", None]), (("state", "scale"), [0.01]),
    (("state", "span_bytes"), [200_000_000, 200_000_001]), (("state", "permuted"), [True]),
    (("state", "spans"), [[[4096, 40_004_096]], [[0, 20_000_000], [30_000_000, 50_000_000]]]),
    (("state", "rest_ns"), [1_000_000]),
    (("state", "trace"), [{"sha256": digit * 64, "device": device, "map": {"name": map_name}}
                          for digit in "56" for device in (0, 1) for map_name in ("identity", "compact")]),
    (("state", "erased_by"), [None, "format"]),
    (("state", "payload", "compressible_percent"), [50]), (("unwritten_bytes",), [4096]),
    (("payload", "compressible_percent"), [50, 90]), (("payload", "duplicates_percent"), [25]), (("polled",), [True]),
    (("passthrough",), [True]),
    (("drives",), [[DRIVES[0], {**DRIVES[1], **other}] for other in (
        {}, {"source_device": 2}, {"map": {"name": "compact"}}, {"state": {"name": "client"}},
        {"unwritten_bytes": 4096})]),
    (("background",), [[BACKGROUND], [{**BACKGROUND, "spec": "writes=40MB/2s"}], [BACKGROUND, BACKGROUND],
                       [{**BACKGROUND, "lead_ns": 10**9}],
                       [{**BACKGROUND, "lead_ns": 10**9 + 1}], [{**BACKGROUND, "sha256": "7a" * 32}]])]


def changed(path, value):
    run = copy.deepcopy(RUN)
    entry = run
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = value
    if path == ("idle", "cap_ns"):
        run["idle"]["name"] = "cap"
    return Condition.of({"run": run})


def test_each_key_of_an_account_is_an_input_or_a_result():
    keys = {each.name for each in fields(Run)}
    assert keys == INPUTS | RESULTS and not INPUTS & RESULTS


def test_each_input_says_what_a_difference_means():
    assert all(isinstance(each.metadata["role"], Role) for each in fields(Condition))


def test_two_runs_that_differ_in_one_input_have_two_conditions():
    conditions = [Condition.of({"run": RUN}), *(changed(path, value) for path, values in VALUES for value in values)]
    for one, other in itertools.combinations(conditions, 2):
        assert one != other and list(one.differing(other)), one


def test_the_seed_and_the_host_are_no_inputs():
    assert Condition.of({"run": {**RUN, "seed": 7, "environment": {"kernel": "6.1"}}}) == Condition.of({"run": RUN})


def test_the_seed_of_generated_streams_is_no_input_and_their_extent_keeps_none_apart():
    def condition(**changes):
        return Condition.of({"run": {**RUN, "source": {**GENERATED, "streams": [{**STREAM, **changes}]}}})

    assert condition(seed=2) == condition()
    assert list(condition(span_bytes=1 << 20).differing(condition())) == ["extent"]
    assert list(condition(block_bytes=512).differing(condition())) == ["workload"]


def test_the_usual_rest_of_a_state_is_as_one_of_an_earlier_version():
    def condition(**state):
        return Condition.of({"run": {**RUN, "state": {**RUN["state"], **state}}})

    assert condition(rest_ns=0) == condition()
    assert condition(name="client+op25", scale=0.5, rest_ns=150 * 10**9) == condition(name="client+op25", scale=0.5)
    assert condition(name="client", rest_ns=0) != condition(name="client", rest_ns=300 * 10**9)


def test_it_does_not_matter_who_wrote_the_blocks_that_are_read_first():
    prefilled = {**RUN, "unwritten_bytes": 4096, "prefill": {"extents": 1, "bytes": 4096}}
    assert Condition.of({"run": prefilled}) == Condition.of({"run": RUN})


def test_the_phase_of_a_background_is_no_input():
    """Each repetition starts at another one."""
    runs = [{**RUN, "background": [{**BACKGROUND, "phase": phase}]} for phase in (0.0, 0.618)]
    assert Condition.of({"run": runs[0]}) == Condition.of({"run": runs[1]})


def test_idle_time_is_no_input_of_a_pace_without_times():
    saturating = {**RUN, "pace": {"name": "depth", "depth": 4}}
    capped = {"idle": {"name": "cap", "cap_ns": 5}}
    assert Condition.of({"run": saturating | capped}) == Condition.of({"run": saturating})
    saturating["pace"]["streams"] = {"1": {"name": "original"}}
    assert Condition.of({"run": saturating | capped}) != Condition.of({"run": saturating}), "stream 1 has times"


def test_differences_are_said_with_their_values():
    """The pace is none of them: results at different paces are not compared."""
    usual = Condition.of({"run": RUN})
    texts = list(differences({"A": usual, "B": replace(usual, map="compact", pace="asap"), "C": usual}))
    assert texts == ["map is not the same: tile, copies 8 [A, C], compact [B]"]


@pytest.mark.parametrize("run", [{}, {"source": None, "pace": None, "map": None, "state": {}}])
def test_an_account_of_an_earlier_version_has_a_condition(run):
    assert isinstance(Condition.of({"run": {**run, "label": "x"}}).words(), str)
