"""How far a run can be trusted: the replay's own verdict, and what only the analysis can see."""

from collections.abc import Sequence
from statistics import median

LEVELS = ("valid", "qualified", "invalid")
ENOUGH_RUNS = 6
START_APART_C = 3.0  # methodology.md, section 3


def verdict(metadata: dict, numbers: dict) -> dict:
    """{"level", "reasons": [{"level", "text"}]} of one run or captured trace.

    The replay has judged what it saw (methodology.md, section 3). What the records show besides is added; a reason
    that the replay gave already is not repeated.
    """
    run = metadata.get("run")
    reasons = [dict(reason) for reason in ((run or {}).get("verdict") or {}).get("reasons", [])]

    def add(level, text, *known_by):
        if not any(word in reason["text"].lower() for reason in reasons for word in known_by):
            reasons.append({"level": level, "text": text})

    if numbers["all"]["error_ops"]:
        add("invalid", f"{numbers['all']['error_ops']:,} I/Os failed", "error", "failed")
    lost = lost_events(metadata)
    if lost:
        add("qualified", f"the capture lost {lost:,} events", "lost")
    if run is None:
        if not numbers["all"]["ops"]:
            unseen = numbers["all"]["unseen_ops"]
            add("invalid", f"none of {unseen:,} I/Os was seen to complete: there are no figures" if unseen else
                "it holds no I/O: there are no figures")
        return judged(reasons)
    if run.get("partial"):
        add("invalid", f"the replay was cut short: {run['partial']}", "cut short", "partial", "interrupted")
    if numbers["writer"]["state"] == "fell behind":
        add("qualified", f"writer fell behind: {numbers['writer']['late_bursts']} of "
                         f"{numbers['writer']['planned_bursts']} write bursts were due before the earlier had ended",
            "fell behind")
    if (run.get("idle") or {}).get("name", "original") != "original":
        add("qualified", "idle time compressed", "idle")
    return judged(reasons, (run.get("verdict") or {}).get("level", "valid"))


def judged(reasons: list[dict], at_least: str = "valid") -> dict:
    """The worst level of the reasons, and of what was judged before."""
    worst = max([at_least, *(reason["level"] for reason in reasons)], key=LEVELS.index)
    return {"level": worst, "reasons": reasons}


def of_runs(verdicts: list[dict], starts_c: Sequence[float | None] = ()) -> dict:
    """The verdict on a set of runs: the worst of them, each reason once, and whether they are enough.

    starts_c: the drive's temperature at the start of each run, None where unknown, which is held against none.
    """
    reasons = []
    for each in verdicts:
        reasons += [reason for reason in each["reasons"] if reason not in reasons]
    if len(verdicts) < ENOUGH_RUNS:
        reasons.append({"level": "qualified", "text": f"n={len(verdicts)}: fewer than {ENOUGH_RUNS} runs, no interval"})
    if known := [start_c for start_c in starts_c if start_c is not None]:
        usual_c = median(known)
        furthest_c = max(known, key=lambda start_c: abs(start_c - usual_c))
        if abs(furthest_c - usual_c) > START_APART_C:
            reasons.append({"level": "qualified", "text": f"a run began with the drive at {furthest_c:.0f} C, the set "
                                                          f"at {usual_c:.0f} C"})
    return judged(reasons, max((each["level"] for each in verdicts), key=LEVELS.index))


def lost_events(metadata: dict) -> int:
    """Events lost by the capture that this trace is, or that this run replays."""
    source = (metadata.get("run") or {}).get("source") or {}
    lost = source["lost"] if "lost" in source else metadata.get("lost")
    return int((lost.get("total") or 0) if isinstance(lost, dict) else lost or 0)
