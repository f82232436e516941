"""The decision on changes as JUnit XML, for build servers: a test case for each metric."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from blkreel.common.printable import printable

from .document import Outcome, change_words, sentence
from .selection import Selected

_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(outcomes: Sequence[Outcome], selected: Selected) -> str:
    """A metric that changed is a failure; one that could not be decided is an error, so that it never passes."""
    row = selected.rows[-1]
    name = _text(f"blkreel history: {row['workload_title']} on {row['model'] or row['label']}")
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in ("changed", "unknown")}
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {
        "name": name, "tests": str(len(outcomes)), "failures": str(counts["changed"]),
        "errors": str(counts["unknown"])})
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", {"classname": name, "name": _text(outcome.history.metric.key)})
        if outcome.status == "changed":
            words = "; ".join(change_words(outcome.history, change) for change in outcome.changes)
            ElementTree.SubElement(case, "failure", {"type": "change", "message": _text(words)})
        elif outcome.status == "unknown":
            ElementTree.SubElement(case, "error", {"type": "unknown", "message": _text(outcome.why)})
        ElementTree.SubElement(case, "system-out").text = _text(sentence(outcome.history))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _text(text: str) -> str:
    """Text that XML allows: names come from outside."""
    return _NO_XML.sub("\ufffd", printable(text))
