"""Keys of metrics mean the same in the document, --figure, --fail-if and Python, and are refused at the same paces."""

import pytest
from synthetic_runs import write_run, write_trace

import blkreel
from blkreel.analysis.metrics.definitions.headline import usable_keys
from blkreel.analysis.metrics.definitions.metric import ALL_PACES
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import conditions, document, figure, present
from blkreel.common.errors import BlkreelError, UsageError

KEYS = ("load_time", "added_by_drive", "read_wait", "read_throughput", "read_response_p99", "read_service_time",
        "read_p50", "read_p99", "write_p99", "iops", "throughput", "slowdown_by_writes")
REFUSED = {"captured": {"load_time", "added_by_drive", "read_response_p99", "slowdown_by_writes"},
           "original": {"load_time", "added_by_drive", "iops", "throughput"},
           "paced": {"load_time", "added_by_drive", "iops", "throughput"},
           "scaled": {"load_time", "added_by_drive", "iops", "throughput"},
           "dependent": {"read_response_p99"},
           "depth": {"load_time", "added_by_drive", "read_response_p99"},
           "asap": {"load_time", "added_by_drive", "read_response_p99"}}


@pytest.fixture(scope="module", params=ALL_PACES)
def documents(request, tmp_path_factory):
    """The pace, and the report and the comparison of one run, or of a captured trace, with all that metrics need."""
    root, pace = tmp_path_factory.mktemp("pace"), request.param
    if pace == "captured":
        measured = measure(write_trace(root / "captured.parquet", 6))
    else:
        measured = measure(write_run(root / pace, seconds=6))
        measured.metadata["run"] |= {
            "pace": {"name": pace, "depth": 8, "factor": 2}, "zero_latency": {"load_time_ns": 10**9},
            "reads": {"load_time_ns": 3 * 10**9},
            "baseline": {"path": "baseline", "load_time_ns": 10**9, "read_wait_ns": 10**8,
                         "slowdown": {"load_time": 3, "read_wait": 2}}}
    return pace, document.report(measured)[0], document.comparison([measured])[0]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_has_a_value_or_is_refused_with_those_that_have(documents, key):
    pace, shown, compared = documents
    condition = conditions.parse(f"{key} > 1000000s" if key not in ("iops", "slowdown_by_writes") else f"{key} > 1")
    if key.endswith("throughput"):
        condition = conditions.parse(f"{key} > 1MB/s")
    if key in REFUSED[pace]:
        assert shown["entry"]["headline"][key]["value"] is None
        for refused in (lambda: figure.printed(shown, key), lambda: figure.printed(compared, key),
                        lambda: conditions.check(compared, [condition])):
            with pytest.raises(UsageError) as error:
                refused()
            assert usable_keys([pace]) in str(error.value) and key not in usable_keys([pace]).split(", ")
    else:
        value = shown["entry"]["headline"][key]["value"]
        assert value > 0 and float(figure.printed(shown, key)) == value
        (outcome,) = conditions.check(compared, [condition])
        assert outcome.status != "unknown" and outcome.new_value == value and outcome.metric == key


def test_python_has_the_values_of_the_document(tmp_path):
    paths = [write_run(tmp_path / name, name, seed=seed, seconds=6) for name, seed in (("A", 1), ("B", 2))]
    frame, shown = blkreel.open(paths).headline, present.compare(paths)
    assert set(KEYS) <= set(frame.columns) and list(frame.index) == ["A", "B"]
    for entry in shown["sections"][0]["entries"]:
        for key, value in entry["headline"].items():
            found = frame.loc[entry["label"], key]
            assert found != found if value["value"] is None else found == value["value"]


def test_several_runs_of_a_drive_have_one_value_of_a_metric(tmp_path):
    """A time is that of a run, also of a metric that does not lead at this pace, and a count that of all runs."""
    paths = [write_run(tmp_path / name, "A", seed=seed, seconds=6) for seed, name in enumerate("ab")]
    compared = present.compare(paths)
    of_runs = [run["figures"]["read"] for run in compared["sections"][0]["entries"][0]["runs"]]
    for key, name in (("read_busy_time", "busy_ns"), ("read_mean_busy_depth", "mean_busy_depth")):
        one, other = sorted(values[name] for values in of_runs)
        assert one <= float(figure.printed(compared, key)) <= other
        assert float(figure.printed(compared, f"read.{name}")) == float(figure.printed(compared, key))
    assert int(figure.printed(compared, "read_ops")) == sum(values["ops"] for values in of_runs)


@pytest.fixture(scope="module")
def two_workloads(tmp_path_factory):
    """Runs of A and of B, which is slower on both traces: six each."""
    root = tmp_path_factory.mktemp("workloads")
    runs = []
    for label, read_us in (("A", 90), ("B", 135)):
        for workload, cap_ns in (("game", None), ("office", 3_000_000)):
            runs += [write_run(root / f"{label}{workload}{seed}", label, read_us, seed=seed, seconds=4, cap_ns=cap_ns)
                     for seed in range(1, 7)]
    return runs


def test_relative_performance_is_one_number_everywhere(two_workloads):
    shown = present.compare(two_workloads)
    drives = shown["relative_performance"]["drives"]
    value = drives["B"]["value"]
    assert shown["relative_performance"]["reference"] == "A" and value < 0.9
    assert figure.printed(shown, "relative_performance") == repr(value)
    assert figure.with_unit(shown, "relative_performance") == f"{value!r} of A"

    def outcome(text, base=None):
        (only,) = conditions.check(shown, [conditions.parse(text)], base)
        return only

    met = outcome("relative_performance < -5%")
    assert (met.status, met.base, met.new, met.section) == ("met", "A", "B", "2 workloads")
    assert met.new_value == value and met.change == pytest.approx(value - 1)
    assert met.low == pytest.approx(drives["B"]["low"] - 1) and met.why == ""
    assert outcome("relative_performance < 0.9").status == "met"
    assert outcome("relative_performance < -80%").status == "not met"
    assert outcome("relative_performance < -5%", base="B").new_value == pytest.approx(1 / value)
    frame = blkreel.open(two_workloads).relative_performance("A")
    assert frame.loc["B", "relative_performance"] == pytest.approx(value, rel=1e-12)
    assert frame.loc["B", "low"] < value < frame.loc["B", "high"] < 1
    with pytest.raises(UsageError, match="not in that unit"):
        outcome("relative_performance < 2ms")


def test_relative_performance_needs_two_workloads_and_two_drives(two_workloads):
    of_one = [path for path in two_workloads if "game" in path.name]
    condition = [conditions.parse("relative_performance < -5%")]
    shown = present.compare(of_one)
    for refused in (lambda: figure.printed(shown, "relative_performance"), lambda: conditions.check(shown, condition),
                    lambda: figure.printed(present.report(of_one[0]), "relative_performance")):
        with pytest.raises(UsageError, match="metrics of one workload: read_wait, read_throughput"):
            refused()
    with pytest.raises(BlkreelError, match="two workloads"):
        blkreel.open(of_one).relative_performance("A")
    (alone,) = conditions.check(present.compare([path for path in two_workloads if path.name[0] == "A"]), condition)
    assert alone.status == "unknown" and "nothing to compare" in alone.why


def test_an_invalid_run_decides_nothing_over_workloads(tmp_path):
    runs = [write_run(tmp_path / f"{label}{cap_ns}", label, seconds=3, cap_ns=cap_ns,
                      verdict="invalid" if (label, cap_ns) == ("B", None) else "valid")
            for label in ("A", "B") for cap_ns in (None, 3_000_000)]
    (outcome,) = conditions.check(present.compare(runs), [conditions.parse("relative_performance < -5%")])
    assert outcome.status == "unknown" and "B is invalid" in outcome.why
