"""`blkreel compare --fail-if`: what a build server does with a firmware or a kernel that got worse."""

import json
import re
from types import SimpleNamespace

import pytest
from synthetic_runs import write_run, write_trace
from synthetic_tests import MadeTest, closed_loop

from blkreel.analysis.report import conditions, present
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks.results import compared
from blkreel.common.errors import UsageError

MS = 1_000_000


def entry(label, waits, p99s=None, level="valid"):
    """An entry of a document whose runs had these waits."""
    def figures(wait, p99):
        return {"read": {"ops": 5, "wait_ns": wait, "bytes": 4096, "latency": {
            "n": 500, "p99_ns": p99, "max_ns": 9, "too_small": [] if p99 else ["p99"]}}, "all": {"error_ops": 0}}
    runs = [figures(wait, p99) for wait, p99 in zip(waits, p99s or [None] * len(waits), strict=True)]
    mean = geometric_mean(waits)
    return {"label": label, "figures": runs[0], "runs": [{"figures": one} for one in runs],
            "headline": {"read_wait": {"value": mean}, "read_p99": {"value": p99s and p99s[0]}},
            "pace": {"name": "original"},
            "verdict": {"level": level, "reasons": [{"level": level, "text": "2 I/Os failed"}]}}


def check(text, *entries, base=None):
    document = {"sections": [{"title": "Original timing", "entries": list(entries)}]}
    return conditions.check(document, [conditions.parse(text)], base)


EVEN, SLOWER, NOISY = [100, 101, 99, 100, 102, 98], [120, 121, 119, 120, 122, 118], [90, 160, 80, 170, 100, 120]


@pytest.mark.parametrize(("text", "metric", "comparison", "limit", "kind"), [
    ("read_wait > +10%", "read_wait", ">", .1, "change"), ("read wait>10 %", "read_wait", ">", .1, "change"),
    ("read_throughput < -5%", "read_throughput", "<", -.05, "change"), ("p <= −2.5%", "p", "<=", -.025, "change"),
    ("read_p99 > 2ms", "read_p99", ">", 2 * MS, "_ns"), ("read_p99 >= 1.5 us", "read_p99", ">=", 1500, "_ns"),
    ("read_throughput < 500MB/s", "read_throughput", "<", 500, "_mb_s"), ("x < 1.2GB/s", "x", "<", 1200, "_mb_s"),
    ("read.bytes < 8KiB", "read.bytes", "<", 8192, "_bytes"), ("slowdown > 1.5", "slowdown", ">", 1.5, ""),
])
def test_conditions_as_people_write_them(text, metric, comparison, limit, kind):
    parsed = conditions.parse(text)
    assert (parsed.metric, parsed.comparison, parsed.kind) == (metric, comparison, kind)
    assert parsed.limit == pytest.approx(limit)


@pytest.mark.parametrize(("text", "says"), [
    ("read_wait", "is not a condition"), ("> 10%", "is not a condition"), ("read_wait = 3", "is not a condition"),
    ("read_wait > fast", "is not a condition"), ("read_wait > +2ms", "with a sign is a change"),
    ("read_wait > 3 parsecs", "unknown unit 'parsecs'"), ("", "is not a condition"),
    ("read_wait > +10,5%", "is not a condition"), ("read_throughput < 1e3MB/s", "is not a condition")])
def test_what_is_no_condition_says_how_to_write_one(text, says):
    with pytest.raises(UsageError, match=says):
        conditions.parse(text)


@pytest.mark.parametrize(("text", "new", "status"), [
    ("read_wait > +10%", SLOWER, "met"), ("read_wait > +25%", SLOWER, "not met"),
    ("read_wait > +10%", NOISY, "noise"), ("read_wait > +10%", NOISY[:5], "met"),
    ("read_wait > +10%", EVEN, "not met"), ("read_wait < -10%", [80] * 6, "met"),
    ("read_wait > 110ns", SLOWER, "met"), ("read_wait > 130ns", SLOWER, "not met"),
    # This one asks for an improvement, and noise is none.
    ("read_wait > -3%", EVEN, "met"), ("read_wait > -3%", [80] * 6, "not met"),
    ("read.wait > +10%", SLOWER, "met"), ("error_ops > 0", SLOWER, "not met")])
def test_decisions(text, new, status):
    (outcome,) = check(text, entry("base", EVEN), entry("new", new))
    assert outcome.status == status
    assert conditions.exit_code([outcome]) == (4 if status == "met" else 0)
    if "%" in text and len(new) == 6:
        assert outcome.low <= outcome.change <= outcome.high and "decided" not in outcome.why
    assert "mean of the runs" not in conditions.words(outcome)
    if len(new) < 6:
        assert outcome.low is None and "n=5" in outcome.why and "the value alone decided" in conditions.words(outcome)


def test_the_change_of_a_percentile_is_told_from_that_of_all_ios():
    """One run of six had a slow tail, which decides the percentile of all I/Os and not the mean of the runs' own."""
    base, new = entry("base", EVEN, [500] * 5 + [9000]), entry("new", EVEN, [600] * 6)
    base["headline"]["read_p99"]["value"] = 590
    (outcome,) = check("read_p99 > +1%", base, new)
    assert outcome.change < 0 and outcome.status == "not met"
    assert "in the mean of the runs" in conditions.words(outcome)
    assert "(590 ns to 600 ns of all I/Os)" in conditions.words(outcome)


def test_names_of_writes_are_those_of_reads_and_values_are_in_their_units():
    base, new = entry("base", EVEN), entry("new", EVEN)
    for one in (base, new):
        for figures in [one["figures"], *(run["figures"] for run in one["runs"])]:
            figures["write"] = {"ops": 5, "latency": {"n": 500, "p99_ns": 3 * MS, "too_small": []}}
    (outcome,) = check("write_p99 > 2ms", base, new)
    assert outcome.status == "met" and conditions.words(outcome).startswith("met: write_p99 > 2ms  [new]  (3.00 ms)")
    (outcome,) = check("read.bytes > 1KiB", base, new)
    assert "(4.10 KB)" in conditions.words(outcome)
    (outcome,) = check("write_p99 > +10%", base, new)
    assert "  0.0 %" in conditions.words(outcome)


@pytest.mark.parametrize("percent", [-60, -4, 3, 10, 199])
def test_a_change_of_just_the_limit_is_at_it(percent):
    for base in (100, 300, 1_234_500):
        pair = entry("base", [base]), entry("new", [base + base * percent // 100])
        assert base * percent % 100 == 0
        told = {sign: check(f"read_wait {sign} {percent:+}%", *pair)[0].status for sign in (">", ">=", "<", "<=")}
        assert told == {">": "not met", ">=": "met", "<": "not met", "<=": "met"}


def test_no_change_in_percent_of_what_is_below_zero():
    (outcome,) = check("read_p99 > +10%", entry("base", [9], [-100]), entry("new", [9], [-50]))
    assert outcome.status == "unknown" and "below zero" in outcome.why


def test_change_is_of_the_new_against_the_base():
    (outcome,) = check("read_wait > +10%", entry("base", EVEN), entry("new", SLOWER))
    assert outcome.change == pytest.approx(.2, abs=.003)
    (outcome,) = check("read_wait > +10%", entry("new", SLOWER), entry("old", EVEN), base="old")
    assert (outcome.base, outcome.new) == ("old", "new") and outcome.change == pytest.approx(.2, abs=.003)
    four = [entry(name, EVEN) for name in "abcd"]
    assert [one.new for one in check("read_wait > 1%", *four, base="b")] == ["a", "c", "d"]


@pytest.mark.parametrize(("entries", "says"), [
    ([entry("base", EVEN)], "nothing to compare with the base"),
    ([entry("base", EVEN), entry("new", SLOWER, level="invalid")], "new is invalid: 2 I/Os failed")])
def test_what_cannot_be_checked_never_passes(entries, says):
    (outcome,) = check("read_wait > +10%", *entries)
    assert outcome.status == "unknown" and says in outcome.why and conditions.exit_code([outcome]) == 3
    met = SimpleNamespace(status="met")
    assert conditions.exit_code([outcome, met]) == 4


def test_the_base_is_the_first_drive_named_at_each_pace(tmp_path):
    """The second pace was decided the other way around, so that what got slower had got faster."""
    runs = [write_run(tmp_path / f"{label}{cap_ns}", label, read_us, cap_ns=cap_ns, seconds=3)
            for label, read_us, cap_ns in (("old", 90, None), ("new", 99, None), ("new", 99, 5 * MS),
                                           ("old", 90, 5 * MS))]
    outcomes = conditions.check(present.compare(runs), [conditions.parse("read_service_time > +5%")])
    assert [(outcome.base, outcome.new, outcome.status) for outcome in outcomes] == 2 * [("old", "new", "met")]
    for text in ("read_wait > 9s", "read_wait > +900%"):
        outcomes = conditions.check(present.compare([*runs[:2], runs[3]]), [conditions.parse(text)])
        assert [outcome.status for outcome in outcomes] == ["not met", "unknown"], "new was not run at the second pace"
    alone = present.compare(runs[1:3])
    assert [outcome.status for outcome in conditions.check(alone, [conditions.parse("read_wait > 1ns")])] == 2 * ["met"]


@pytest.mark.parametrize("condition", ["read_wait > +10%", "read_wait > 9s", "relative_performance < -5%"])
@pytest.mark.parametrize("invalid", ["old", "new"])
def test_a_drive_whose_runs_are_all_left_out_never_passes(tmp_path, invalid, condition):
    """Without the first one the next was the base."""
    runs = [write_run(tmp_path / f"{label}{cap_ns}", label, cap_ns=cap_ns, seconds=3,
                      verdict="invalid" if label == invalid and cap_ns else "valid")
            for cap_ns in (None, 5 * MS, 6 * MS) for label in ("old", "new", "newer")]
    outcomes = conditions.check(present.compare(runs, drop_invalid=True), [conditions.parse(condition)])
    assert conditions.exit_code(outcomes) == 3
    assert any(outcome.new == invalid or "left out" in outcome.why for outcome in outcomes)


def test_a_pace_whose_runs_are_all_left_out_never_passes(tmp_path):
    runs = [write_run(tmp_path / f"{label}{cap_ns}", label, cap_ns=cap_ns, seconds=3,
                      verdict="invalid" if cap_ns else "valid")
            for cap_ns in (None, 5 * MS) for label in ("old", "new")]
    outcomes = conditions.check(present.compare(runs, drop_invalid=True), [conditions.parse("read_wait > +10%")])
    assert [(outcome.new, outcome.status) for outcome in outcomes] == [
        ("new", "not met"), ("old", "unknown"), ("new", "unknown")]


def test_conditions_on_failed_ios_are_decided_before_the_verdict():
    """I/Os that failed make a run invalid, so the condition could otherwise never be met."""
    base, new = entry("base", EVEN), entry("new", EVEN, level="invalid")
    for figures in [new["figures"], *(run["figures"] for run in new["runs"])]:
        figures["all"]["error_ops"] = 2
    for text in ("error_ops > 0", "all.error_ops > 0", "error_ops > 0 "):
        (outcome,) = check(text, base, new)
        assert outcome.status == "met" and conditions.exit_code([outcome]) == 4
    assert check("read_wait > +10%", base, new)[0].status == "unknown"


def test_conditions_on_failed_ios_are_on_those_of_all_runs(tmp_path):
    """Three of one run, which a mean over runs would hide, and those of runs that --drop-invalid leaves out."""
    base, new = entry("base", EVEN), entry("new", EVEN)
    new["runs"][2]["figures"]["all"]["error_ops"] = 3
    for text, value, status in (("error_ops > 2", 3, "met"), ("error_ops > 3", 3, "not met")):
        (outcome,) = check(text, base, new)
        assert (outcome.new_value, outcome.status) == (value, status)
    new["left_out"] = [new["runs"][2]["figures"]]
    assert check("error_ops > 3", base, new)[0].new_value == 6
    runs = [write_run(tmp_path / verdict, seconds=3, verdict=verdict) for verdict in ("valid", "invalid")]
    (drive,) = present.compare(runs, drop_invalid=True)["sections"][0]["entries"]
    assert [figures["all"]["error_ops"] for figures in drive["left_out"]] == [0]


def test_a_percentile_of_too_few_is_not_passed():
    (outcome,) = check("read_p99 > +10%", entry("base", EVEN), entry("new", EVEN))
    assert outcome.status == "unknown" and "n too small (n=500)" in outcome.why


@pytest.mark.parametrize(("text", "says"), [
    ("read_wat > +10%", "did you mean 'read_wait'"), ("read.latency.p9 > 3ms", "did you mean .*read.latency.p99_ns"),
    ("read_wait > 5MB/s", "is not in that unit"), ("read_p99 > 5", "needs a unit.*write the limit like 2ms"),
    ("writer_state > 1", "writer_state is not a number"), ("bytes > 1KiB", None)])
def test_unknown_figures_name_the_nearest(text, says):
    if says is None:
        assert check(text, entry("base", EVEN), entry("new", EVEN))[0].metric == "read_bytes"
        return
    with pytest.raises(UsageError, match=says):
        check(text, entry("base", EVEN), entry("new", EVEN))


def test_a_metric_without_meaning_at_the_pace_is_refused():
    drives = entry("base", EVEN), entry("new", EVEN)
    for drive in drives:
        drive["pace"] = {"name": "depth", "depth": 8}
    with pytest.raises(UsageError, match="response p99 needs fixed due times, which depth pace does not have"):
        check("read_response_p99 > 1%", *drives)
    assert check("read_wait > 1%", *drives)[0].status == "not met"
    for drive in drives:
        drive["pace"] = {"name": "original"}
        drive["figures"]["read"]["bursts"] = {"throughput_mb_s": 5}
    for text in ("read_burst_throughput < -5%", "read.bursts.throughput_mb_s < -5%", "throughput < 5MB/s",
                 "bursts.throughput < -5%"):
        with pytest.raises(UsageError, match="set by the plan at original pace; use read_wait"):
            check(text, *drives)


@pytest.mark.parametrize("metric", ["written_on_time", "writer.written_on_time", "relative_performance"])
def test_percent_of_a_share_is_not_taken_for_a_change(metric):
    entries = [entry("a", EVEN), entry("b", EVEN)]
    for one in entries:
        one["figures"]["writer"] = {"written_on_time": 0.5}
    document = {"sections": [{"title": "Original timing", "entries": entries}] * 2}
    with pytest.raises(UsageError, match="is a share") as error:
        conditions.check(document, [conditions.parse(f"{metric} < 99%")])
    assert error.value.remedy == "write 0.99 for the share, +99% for its change"


def test_a_line_names_its_section_where_there_are_several():
    outcomes = [check("read_wait > +10%", entry("base", EVEN), entry("new", EVEN))[0]] * 2
    assert [conditions.words(outcome, has_section).partition("  ")[2].partition("]")[0] for outcome, has_section in zip(
        outcomes, (False, True), strict=True)] == ["[new against base", "[new against base, original timing"]


def test_a_base_that_is_none_of_them():
    with pytest.raises(UsageError, match="none of these drives; did you mean 'base'"):
        check("read_wait > 1%", entry("base", EVEN), entry("new", EVEN), base="bsae")


def test_results_of_tests():
    """Figures of tests by the end of their key, each repeat where it is known."""
    def figures(slowdown, repeats=None):
        own = {"slowdown": slowdown, "writer": [], "mixed": {"read_wait_ns": 5}, "baseline": {"read_wait_ns": 3},
               "random-read-4K": {"p99_ns": 10 * slowdown if slowdown else None}}
        return {"states": {"client+op25": {**own, **({"slowdown_repeats": repeats} if repeats else {})}}}
    document = {"title": "mixed-burst", "labels": ["old", "new"], "verdict": {"level": "qualified", "reasons": []},
                "figures": {"old": figures(1.0, EVEN), "new": figures(1.2, SLOWER)}}
    check_one = lambda text: conditions.check(document, [conditions.parse(text)])  # noqa: E731
    (outcome,) = check_one("slowdown > +10%")
    assert outcome.status == "met" and outcome.metric == "states.client+op25.slowdown" and outcome.low > .1
    assert check_one("slowdown > 1.1")[0].status == "met"
    either = "may be states.client+op25.mixed.read_wait_ns, states.client+op25.baseline.read_wait_ns"
    with pytest.raises(UsageError, match=re.escape(either)):
        check_one("read_wait > 10%")
    assert check_one("mixed.read_wait > 10%")[0].status == "not met"
    for text in ("random-read-4K.p99 > +10%", "states.client+op25.random-read-4K.p99_ns > 11ns"):
        assert check_one(text)[0].status == "met"
    for name, status in (("repeats", "met"), ("time", "unknown")):
        settings = {label: {"quick": False, "scale": 1, "parameters": {name: value}, "parameters_text": {}}
                    for label, value in (("old", 6), ("new", 9))}
        document["verdict"]["reasons"] = list(compared.parameter_differences(settings))
        assert check_one("slowdown > +10%")[0].status == status
        assert check_one("slowdown > 1.1")[0].status == "met"
    document["verdict"]["reasons"] = []
    document["figures"]["new"] = figures(None)
    assert check_one("slowdown > +10%")[0].status == "unknown"
    document["verdict"]["level"] = "invalid"
    assert "invalid" in check_one("mixed.read_wait > 10%")[0].why


# The installed command.

@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of a drive, and of its next firmware, of which a read takes a third longer."""
    root = tmp_path_factory.mktemp("runs")
    return {name: [write_run(root / f"{name}{seed}", name, read_us=read_us, seed=seed, seconds=6, verdict=verdict)
                   for seed in seeds]
            for name, read_us, seeds, verdict in (("old", 90, (1, 2, 3), "valid"), ("new", 120, (4, 5, 6), "valid"),
                                                  ("broken", 90, (7,), "invalid"))}


def test_a_withheld_metric_and_a_simulated_drive_decide_nothing(blkreel, tmp_path):
    runs = [write_run(tmp_path / name, name, read_us=read_us, seed=seed, seconds=6, withheld=withheld, simulated=True)
            for name, read_us, seed, withheld in (("old", 90, 1, ()), ("new", 120, 4, ("read_p90", "read_p99")))]

    def run(condition, *more):
        done = blkreel("compare", *runs, "--fail-if", condition, *more, check=False)
        return done.returncode, done.stderr

    code, stderr = run("read_p50 > +10%")
    assert code == 3 and "old is simulated: to rehearse, add --allow-simulated" in stderr
    assert run("read_p50 > +10%", "--allow-simulated")[0] == 4
    code, stderr = run("read_p99 > +10%", "--allow-simulated")
    assert code == 3 and "read_p99 of new is withheld" in stderr
    for name in ("read_p99", "read_p90", "read.latency.p90"):
        code, stderr = run(f"{name} > 1ns", "--allow-simulated")
        assert code == 3 and f"read_{name[-3:]} of new is withheld" in stderr
    shown = json.loads(blkreel("compare", *runs, "--json").stdout)["sections"][0]["entries"][1]
    assert shown["simulated"] and shown["verdict"]["withheld"] == ["read_p90", "read_p99"]
    assert shown["headline"]["read_p99"]["value"] is None
    assert shown["figures"]["read"]["latency"]["p99_ns"] > 0, "the value itself stays in the document"
    assert "no condition" in blkreel("compare", *runs, "--allow-simulated", code=2).stderr


def test_exit_codes(blkreel, runs, tmp_path):
    def run(*arguments, names=("old", "new")):
        done = blkreel("compare", *(path for name in names for path in runs[name]), *arguments, check=False)
        return done.returncode, done.stdout, done.stderr

    code, stdout, stderr = run("--fail-if", "read_p50 > +10%", "--fail-if", "read_wait > +500%")
    assert code == 4
    assert "met: read_p50 > +10%  [new against old]" in stderr and "not met: read_wait > +500%" in stderr
    assert "n=3: fewer than 6 runs, the value alone decided" in stderr and "6 runs: 6 valid" in stdout
    assert run("--fail-if", "read_p50 > +10%", "--base", "new")[0] == 0
    code, stdout, _ = run("--fail-if", "read_p50 > +10%", "--json")
    (outcome,) = json.loads(stdout)["fail_if"]
    assert code == 4 and outcome["status"] == "met" and outcome["change"] == pytest.approx(.33, abs=.12)

    code, _, stderr = run("--fail-if", "read_p50 > +10%", names=("old", "broken"))
    assert code == 3 and "unknown: read_p50 > +10%" in stderr and "broken is invalid" in stderr

    for arguments, says in ((["--fail-if", "read_wat > +10%"], "did you mean 'read_wait'"),
                            (["--base", "old"], "--base: no condition")):
        code, stdout, stderr = run(*arguments)
        assert code == 2 and says in stderr and stdout == ""

    trace = write_trace(tmp_path / "t.parquet", 3)
    assert "not met" in blkreel("compare", trace, "--fail-if", "read_p50 > 100s", code=0).stderr
    other = write_trace(tmp_path / "u.parquet", 4)
    done = blkreel("compare", trace, other, "--fail-if", "read_p50 > +10%", check=False)
    assert done.returncode == 3 and "[t, as captured (" in done.stderr
    assert "; no other run here is of this trace at this pace" in done.stderr


def test_command_on_results_of_tests(blkreel, tmp_path):
    """Reads beside a writer that a new firmware makes 1.5 times as slow, in six repeats each."""
    for name, slower in (("old", 2.0), ("new", 3.0)):
        made = MadeTest(tmp_path / name, "mixed-burst")
        for repeat in range(1, 7):
            for role, times in (("mixed", slower), ("baseline", 1.0)):
                cost_ns = int(MS * times * (1 + repeat / 1000))
                made.step(role, {"state": "client", "repeat": repeat}, closed_loop(50, cost_ns, burst=0))
        made.told["label"] = name
        made._write()
    done = blkreel("compare", tmp_path / "old", tmp_path / "new", "--fail-if", "slowdown > +20%", "--fail-if",
                   "slowdown > +60%", "--json", code=4)
    met, not_met = json.loads(done.stdout)["fail_if"]
    assert (met["status"], not_met["status"]) == ("met", "not met")
    assert met["metric"] == "states.client.slowdown" and met["change"] == pytest.approx(.5, rel=.01)
    assert met["low"] == pytest.approx(.5, rel=.02) and met["why"] == ""
    done = blkreel("compare", tmp_path / "old", tmp_path / "new", "--fail-if", "read_wait > +20%", check=False)
    assert done.returncode == 2 and "may be states.client.mixed.read_wait_ns" in done.stderr
