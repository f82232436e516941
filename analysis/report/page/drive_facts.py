"""The drives of a comparison as its page lists them: facts, verdict, rank."""

from collections.abc import Sequence
from typing import Any

from blkreel.analysis.charts.model import Entry
from blkreel.analysis.report.columns import idle_words, state_words
from blkreel.analysis.report.drives_file import DrivesFile
from blkreel.analysis.report.verdict import Document
from blkreel.common import units
from blkreel.common.binning import grouped
from blkreel.common.emulated import MODEL, exactness
from blkreel.common.errors import UsageError
from blkreel.common.verdict import Verdict, merged_by_name
from blkreel.traces.format.condition import payload_words
from blkreel.traces.format.metadata_types import PcieLink, Run

FILTERS = ("class", "interface", "flash", "model", "firmware", "state")
_GENERATIONS = {2.5: "1.0", 5: "2.0", 8: "3.0", 16: "4.0", 32: "5.0", 64: "6.0"}
_KINDS = {"loop": "loop device", "file": "file", "zram": "memory", "ram": "memory"}


def entries_of(sections: list[Document], leads: dict[str, tuple[int | None, int]], highlight: str | None,
               drives_file: DrivesFile | None = None) -> tuple[Entry, ...]:
    """One Entry a label, in the order of their places. leads: label -> (rank, place) in what the page leads with."""
    by_label = grouped((entry["label"], entry) for section in sections for entry in section["entries"])
    titles = grouped((entry["label"], section["title"]) for section in sections for entry in section["entries"])
    facts = {label: _over_sections(entries, drives_file) for label, entries in by_label.items()}
    if drives_file and highlight:
        for label, relation in drives_file.relations(highlight, models_of(sections)).items():
            facts[label]["relation"] = relation
    built = []
    for label, entries in by_label.items():
        rank, place = leads.get(label, (None, None))
        why = "a run is invalid" if entries[0]["verdict"]["level"] == "invalid" else f"n={entries[0]['n']}"
        built.append(Entry(label, {name: value for name, value in facts[label].items() if value},
                           _verdict(entries, titles[label]), rank, label == highlight, place,
                           why if place and not rank else ""))
    return tuple(sorted(built, key=lambda entry: entry.place or len(built) + 1))


def models_of(sections: list[Document]) -> dict[str, str]:
    """label -> model of all drives of a comparison's sections."""
    models: dict[str, str] = {}
    for section in sections:
        for entry in section["entries"]:
            models.setdefault(entry["label"], entry["drive"].get("model") or "")
    return models


def chosen(highlight: str | None, models: dict[str, str]) -> str | None:
    """The label that the user means: as it is, or the only one (label or model) that holds these words.

    models: label -> model of all drives. Raises UsageError with the labels there are.
    """
    if not highlight:
        return None
    if highlight in models:
        return highlight
    words = highlight.casefold()
    for texts in (dict(zip(models, models, strict=True)), models):
        labels = [label for label, text in texts.items() if words in text.casefold()]
        if len(labels) == 1:
            return labels[0]
        if labels:
            raise UsageError(f"--highlight {highlight!r} means several: {', '.join(labels)}", "name one of them")
    raise UsageError(f"--highlight {highlight!r} is none of these drives", f"name one of: {', '.join(models)}")


def facts_of(entry: Document, drives_file: DrivesFile | None = None) -> dict[str, Any]:
    """Facts about an entry's drive by name, in display order; "" where unknown. drives_file takes precedence."""
    drive, first = entry["drive"], Run.of(entry["runs"][0])
    stated = drives_file.facts(entry["label"], drive.get("model") or "") if drives_file else {}
    size_bytes = drive.get("size_bytes")
    return {
        "model": (drive.get("model") or "").strip(),
        "firmware": (drive.get("firmware") or "").strip(),
        "unit": (drive.get("serial_hash") or "")[:8],
        "capacity": units.size(size_bytes) if size_bytes else "",
        "class": stated.get("class", ""),
        "interface": stated.get("interface") or interface(drive, first),
        "timing": "; ".join(map(exactness, first.emulated)),
        "flash": stated.get("flash", ""),
        "state": state_words(entry["state"]) if entry["state"] is not None else "",
        "data written": payload_words(entry["payload"]),
        "idle": idle_words(entry["idle"]) if entry["idle"] else "",
        "runs": str(entry["n"]),
        "price": stated.get("price", ""),
        "predecessor": stated.get("predecessor", ""),
        "rivals": stated.get("rivals", ""),
        "relation": "",
    }


def interface(drive: Document, run: Run) -> str:
    """How the drive was attached, as recorded in the run; "" if not recorded."""
    link = run.environment.link or PcieLink()
    speed, width = link.get("speed_gts"), link.get("width")
    if speed and width:
        return f"PCIe {_GENERATIONS[speed]} x{width:g}" if speed in _GENERATIONS else f"PCIe, {speed:g} GT/s x{width:g}"
    if (drive.get("model") or "").startswith(MODEL):
        return "emulated"
    if drive.get("kind") in _KINDS:
        return _KINDS[drive["kind"]]
    name = drive.get("name") or ""
    return "NVMe" if name.startswith("nvme") else "SATA or SAS" if name.startswith("sd") else ""


def filters_of(page_entries: Sequence[Entry]) -> tuple[str, ...]:
    """Facts to filter by: those with at least two values."""
    return tuple(name for name in FILTERS if len({entry.facts.get(name) for entry in page_entries}) > 1)


def _over_sections(entries: list[Document], drives_file: DrivesFile | None) -> dict[str, Any]:
    """Facts of one drive over its sections; those of the runs may differ between sections."""
    first, *later = [facts_of(entry, drives_file) for entry in entries]
    for name in ("state", "data written", "idle"):
        first[name] = "; ".join(dict.fromkeys(facts[name] for facts in (first, *later) if facts[name]))
    counts = sorted({entry["n"] for entry in entries})
    return {**first, "runs": f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])}


def _verdict(entries: list[Document], titles: list[str]) -> Verdict:
    """The worst verdict; a reason that holds in some sections only names them."""
    def words(text: str, where: list[str]) -> str:
        return text if len(where) == len(entries) else f"{text} ({'; '.join(where)})"

    return merged_by_name([(title, entry["verdict"]) for entry, title in zip(entries, titles, strict=True)], words)
