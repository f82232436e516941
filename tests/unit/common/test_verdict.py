"""The codes of a verdict's reasons, and verdicts of files that have none."""

import re
from pathlib import Path

from blkreel.common.verdict import CODES, judged, merged, note, reason, recorded

METHOD = Path(__file__).parents[3] / "docs/method.md"


def test_the_documented_codes_are_all_codes():
    """Scripts depend on them: a code that goes or changes is a break."""
    section = METHOD.read_text().partition("### Reasons")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == CODES


def test_the_worst_reason_decides_and_comes_first():
    verdict = judged([reason("hazards", "qualified", "b"), reason("io_errors", "invalid", "a", "error_ops", 3, 0)],
                     withheld=["read_p99", "read_p50", "read_p99"])
    assert verdict["level"] == "invalid"
    assert [each["code"] for each in verdict["reasons"]] == ["io_errors", "hazards"]
    assert verdict["reasons"][0] == {"code": "io_errors", "level": "invalid", "metric": "error_ops", "value": 3,
                                     "limit": 0, "text": "a"}
    assert verdict["withheld"] == ["read_p50", "read_p99"]


def test_a_merged_verdict_has_all_that_holds_against_its_parts():
    """The entry of a drive with two benchmarks lost the notes and withheld metrics of both."""
    hazards, hot = reason("hazards", "qualified", "b"), note("power_not_measured", "power not measured")
    parts = [judged([hazards], notes=[hot], withheld=["read_p99"]),
             judged([hazards, reason("io_errors", "invalid", "a")], notes=[hot], withheld=["read_p50"])]
    assert merged(parts, [reason("few_runs", "qualified", "n=2")]) == {
        "level": "invalid", "notes": [hot], "withheld": ["read_p50", "read_p99"],
        "reasons": [reason("io_errors", "invalid", "a"), hazards, reason("few_runs", "qualified", "n=2")]}
    assert merged([judged((), "invalid")])["level"] == "invalid", "a level without reasons"


def test_a_note_does_not_lower_the_level():
    assert judged([], notes=[note("power_not_measured", "power not measured")])["level"] == "valid"


def test_a_verdict_without_codes_is_taken_as_recorded_with_a_note():
    old = {"level": "invalid", "reasons": [{"level": "invalid", "text": "issue lateness p99 269 us (limit 100 us)"}]}
    verdict = recorded(old)
    assert verdict["level"] == "invalid"
    assert verdict["reasons"][0]["code"] == "recorded_verdict"
    assert verdict["reasons"][0]["text"] == "issue lateness p99 269 us (limit 100 us)"
    assert [each["code"] for each in verdict["notes"]] == ["recorded_verdict"]
    assert recorded(verdict) == verdict, "a second time nothing changes"
    assert recorded(None) == {"level": "valid", "reasons": [], "notes": [], "withheld": []}
