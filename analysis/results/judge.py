"""The verdict on a test: the worst of its steps', each reason once."""

import re

from ..verdict import ENOUGH_RUNS, judged, verdict
from .directory import Runs, Test
from .parts import Content

_NUMBER = re.compile(r"\d[\d,.]*(?: (?:ns|us|µs|ms|s|min|h|B|[KMGTP]B)\b| ?%)?")
_STEPS_NAMED = 3


def judge(test: Test, runs: Runs, content: Content) -> dict:
    """{"level", "reasons": [{"level", "text", "steps"}]}: what the runs say, what only the results show, and what
    makes this test another than the method's."""
    reasons = [{**reason, "steps": []} for reason in _of_the_test(test, runs)]
    reasons += [{"steps": [], **reason} for reason in content.reasons]
    reasons += _of_the_steps(runs, [reason["text"] for reason in reasons])
    reasons.sort(key=lambda reason: reason["level"] != "invalid")  # stable: otherwise in the order found
    return judged(reasons)


def _of_the_test(test, runs):
    """What holds for the whole test."""
    missing = runs.missing()
    failed = [each for each in missing if each["status"] != "waiting"]
    if failed:
        yield {"level": "invalid", "text": f"{_steps(len(failed))} failed: {_names(failed)}"}
    if not any(step.role in runs.asked for step in test.steps):
        yield {"level": "invalid", "text": "no step has the role that this report is of: "
                                           f"{' or '.join(sorted(runs.asked))}"}
    waiting = [each for each in missing if each["status"] == "waiting"]
    if waiting:
        yield {"level": "invalid", "text": f"the test is not finished: {_steps(len(waiting))} to go"}
    if test.told.get("quick"):
        yield {"level": "qualified", "text": "quick: shortened, not the method's lengths"}
    scale = test.told.get("scale")
    if scale is not None and scale != 1:
        yield {"level": "qualified", "text": f"scaled to {100 * scale:.3g} % of the method's sizes, to fit the drive"}
    repeats = len({step.repeat for step in test.steps if step.role})
    if repeats < ENOUGH_RUNS:
        yield {"level": "qualified", "text": f"n={repeats}: fewer than {ENOUGH_RUNS} repeats, no interval"}


def _of_the_steps(runs, known):
    """Each reason once, with the steps it holds for; those that differ only in their numbers are one, with the words
    of the first."""
    found = {}
    titles = {step.id: step.title for step in runs.test.steps}
    for step_id, metadata in runs.opened.items():
        numbers = {"all": {"error_ops": (metadata.get("run") or {}).get("error_ops") or 0},
                   "writer": {"state": "none"}}
        for reason in verdict(metadata, numbers)["reasons"]:
            key = (reason["level"], _NUMBER.sub("#", reason["text"]))
            one = found.setdefault(key, {"level": reason["level"], "texts": [], "steps": []})
            one["texts"].append(reason["text"])
            one["steps"].append(step_id)
    shown = []
    for one in found.values():
        text = one["texts"][0]
        if text in known:
            continue
        if len(set(one["texts"])) > 1:
            text += ", and the like"
        named = [titles[step] for step in one["steps"]]
        if len(named) == len(runs.opened) and len(named) > 1:
            text += " (all steps)"
        elif len(runs.opened) > 1:
            several = f"{len(named)} of {len(runs.opened)} steps: " if len(named) > 1 else ""
            more = f" and {len(named) - _STEPS_NAMED} more" if len(named) > _STEPS_NAMED else ""
            text += f" ({several}{', '.join(named[:_STEPS_NAMED])}{more})"
        shown.append({"level": one["level"], "text": text, "steps": one["steps"]})
    return shown


def _steps(count):
    return f"{count} step{'' if count == 1 else 's'}"


def _names(missing):
    more = f" and {len(missing) - _STEPS_NAMED} more" if len(missing) > _STEPS_NAMED else ""
    return ", ".join(each["title"] for each in missing[:_STEPS_NAMED]) + more
