"""The verdict on a test: the worst verdict of its runs, with each reason once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from blkreel.analysis.metrics.provider_limit import group_limit_words
from blkreel.analysis.report.verdict import verdict
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common.units import counted
from blkreel.common.verdict import Note, Reason, Verdict, judged, reason, step_reason
from blkreel.traces.format.metadata_types import Run

from .directory import Runs, Test
from .document import Content

_NUMBER = re.compile(r"\d[\d,.]*(?: (?:ns|us|µs|ms|s|min|h|B|[KMGTP]B)\b| ?%)?")
_MAX_NAMES = 3


def verdict_of(test: Test, runs: Runs, content: Content) -> Verdict:
    """Reasons of the test as a whole, of the report, and of the runs."""
    reasons = [*_of_test(test, runs), *content.reasons]
    of_runs, notes = _of_runs(runs, {of_test["text"] for of_test in reasons})
    return judged([*reasons, *of_runs], notes=notes)


def _of_test(test: Test, runs: Runs) -> Iterator[Reason]:
    missing = runs.missing()
    failed = [step for step in missing if step["status"] != "waiting"]
    if failed:
        yield step_reason("steps_failed", "invalid",
                          f"{counted(len(failed), 'step')} failed: {_names([step['title'] for step in failed])}")
    if not any(step.role in runs.roles for step in test.steps):
        yield step_reason("no_measured_step", "invalid",
                          f"no step has the role {' or '.join(sorted(runs.roles))} of this report")
    waiting = [step for step in missing if step["status"] == "waiting"]
    if waiting:
        yield step_reason("not_finished", "invalid", f"the test is not finished: {counted(len(waiting), 'step')} to go")
    if test.document.get("quick"):
        yield step_reason("quick", "qualified", "quick: shortened, not the method's durations")
    scale = test.document.get("scale", 1)
    if scale != 1:
        yield step_reason("scaled", "qualified",
                          f"scaled to {100 * scale:.3g} % of the method's sizes, to fit the drive")
    yield from few_repeats(len({step.repeat for step in test.steps if step.role}))


def few_repeats(repeats: int) -> Iterator[Reason]:
    """The reason if there are too few for an interval."""
    if repeats < ENOUGH_RUNS:
        yield {**step_reason("few_runs", "qualified", f"n={repeats}: fewer than {ENOUGH_RUNS} repeats, no interval"),
               "value": repeats, "limit": ENOUGH_RUNS}


def _of_runs(runs: Runs, known_texts: set[str]) -> tuple[list[Reason], list[Note]]:
    """Reasons that differ only in numbers are merged under the text of the first, and so are notes."""
    merged: dict[tuple[str, str, str], list[tuple[Reason, str]]] = {}  # by code, level, text without numbers
    notes: dict[str, Note] = {}
    for step_id, metadata in runs.metadata.items():
        metrics = {"all": {"error_ops": Run.of(metadata).error_ops}, "writer": {"state": "none"}}
        judged_run = verdict(metadata, metrics)
        for given in (*judged_run["reasons"], *_of_group(metadata)):
            key = (given["code"], given["level"], _NUMBER.sub("#", given["text"]))
            merged.setdefault(key, []).append((given, step_id))
        notes |= {note["text"]: note for note in judged_run["notes"]}
    titles = {step.id: step.title for step in runs.test.steps}
    reasons: list[Reason] = []
    for group in merged.values():
        first, steps = group[0][0], [step_id for _, step_id in group]
        text = first["text"]
        if text in known_texts:
            continue
        if len({given["text"] for given, _ in group}) > 1:
            text += ", and similar"
        if len(steps) == len(runs.metadata) > 1:
            text += " (all steps)"
        elif len(runs.metadata) > 1:
            count = f"{len(steps)} of {len(runs.metadata)} steps: " if len(steps) > 1 else ""
            text += f" ({count}{_names([titles[step_id] for step_id in steps])})"
        reasons.append({**first, "text": text, "steps": steps})
    return reasons, list(notes.values())


def _of_group(metadata: Mapping[str, Any]) -> Iterator[Reason]:
    """A benchmark asks for what the drive can do, so that a limit counts whether or not its runs show it."""
    for device in metadata.get("devices") or []:
        if io_max := device.get("io_max"):
            yield reason("io_max", "qualified",
                         f"its control group limits the drive to {group_limit_words(io_max)}")


def _names(titles: Sequence[str]) -> str:
    more = f" and {len(titles) - _MAX_NAMES} more" if len(titles) > _MAX_NAMES else ""
    return ", ".join(titles[:_MAX_NAMES]) + more
