"""How the figures of a page came about: parameters, decisions, the trace behind them."""

from .. import definitions, numbers
from ..bursts import DEFAULT_GAP_NS
from ..columns import idle_words, payload_words
from ..verdict import ENOUGH_RUNS


def method_of(document: dict, sections: list[dict]) -> dict:
    """The fields of a Page that say how its figures came about."""
    sure = any(entry["n"] >= ENOUGH_RUNS for section in sections for entry in section["entries"])
    gap_ns = document["parameters"]["burst_gap_ns"]
    gap = numbers.setting(gap_ns)
    return {"parameters": tuple([("Burst gap", gap), *_sources(sections), *_runs(sections)]),
            "decisions": tuple((name, text.format(gap=gap)) for name, text in definitions.DECISIONS),
            "definitions": (*definitions.FIGURES, *(definitions.STATISTICS if sure else ())),
            "preamble": definitions.PREAMBLE.replace(f"{DEFAULT_GAP_NS:_}", f"{gap_ns:_}") + (
                f"\n\n{definitions.STATISTICS_PREAMBLE}" if sure else "")}


def _sources(sections):
    told = {}
    for section in sections:
        source = section["source"]
        told.setdefault(source["sha256"] or source["path"], source)
    for source in told.values():
        words = [source["path"]]
        if source["rows"] is not None:
            words.append(f"{source['rows']:,} I/Os")
        if source["duration_ns"] is not None:
            words.append(numbers.duration(source["duration_ns"]))
        if source["sha256"]:
            words.append(f"SHA-256 {source['sha256']}")
        if source["command"]:
            words.append(f"captured from: {source['command']}")
        if source["programs"]:
            words.append(f"I/O of {', '.join(source['programs'])}")
        if source["lost_events"]:
            words.append(f"the capture lost {source['lost_events']:,} events")
        yield "Trace", "; ".join(str(word) for word in words if word)


def _runs(sections):
    """What else decides the figures, besides the formulas."""
    for section in sections:
        for entry in section["entries"]:
            runs = ", ".join(run["path"] for run in entry["runs"])
            idle = f"idle {idle_words(entry['idle'])}; " if entry["idle"] else ""
            data = payload_words(entry["payload"])
            data = f"data written {data}; " if data else ""
            yield f"{section['title']}, {entry['label']}", f"{idle}{data}n={entry['n']}: {runs}"
