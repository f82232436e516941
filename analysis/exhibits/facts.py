"""The drives of a comparison as its page lists them: what each is, how far to trust it, where it ranks."""

from blkreel.traces.errors import UsageError

from .. import numbers
from ..columns import idle_words, payload_words, state_words
from ..verdict import LEVELS
from .model import Entry

FILTERS = ("class", "interface", "flash", "model", "firmware", "state")
HUES = ("interface", "class", "flash")  # what colour tells in a ranking: the first of these that differs
_GENERATIONS = {2.5: "1.0", 5: "2.0", 8: "3.0", 16: "4.0", 32: "5.0", 64: "6.0"}
_KINDS = {"loop": "loop device", "file": "file", "zram": "memory", "ram": "memory"}


def entries_of(sections, leads: dict[str, tuple], highlight: str | None, catalogue=None) -> tuple[Entry, ...]:
    """One Entry a label, in the order of their places. leads: label -> (rank, place) in what the page leads with."""
    shown, titles = {}, {}
    for section in sections:
        for entry in section["entries"]:
            shown.setdefault(entry["label"], []).append(entry)
            titles.setdefault(entry["label"], []).append(section["title"])
    told = {label: _over_sections(ones, catalogue) for label, ones in shown.items()}
    if catalogue and highlight:
        for label, relation in catalogue.relations(highlight, models_of(sections)).items():
            told[label]["relation"] = relation
    built = []
    for label, ones in shown.items():
        rank, place = leads.get(label, (None, None))
        built.append(Entry(label, {name: value for name, value in told[label].items() if value},
                           _verdict(ones, titles[label]), rank, label == highlight, place,
                           f"n={ones[0]['n']}" if place and not rank else ""))
    return tuple(sorted(built, key=lambda entry: entry.place or len(built) + 1))


def models_of(sections) -> dict[str, str]:
    """label -> model of all drives of a comparison's sections."""
    models = {}
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
    for text_of in (lambda label: label, models.get):
        found = [label for label in models if words in text_of(label).casefold()]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"--highlight {highlight!r} means several: {', '.join(found)}", "name one of them")
    raise UsageError(f"--highlight {highlight!r} is none of these drives", f"name one of: {', '.join(models)}")


def facts_of(entry: dict, catalogue=None) -> dict:
    """What is known of an entry's drive, by name, in the order shown; "" where unknown. The user's own file wins."""
    drive, first = entry["drive"], entry["runs"][0].get("run") or {}
    told = catalogue.facts(entry["label"], drive.get("model") or "") if catalogue else {}
    size_bytes = drive.get("size_bytes")
    return {
        "model": (drive.get("model") or "").strip(),
        "firmware": (drive.get("firmware") or "").strip(),
        "unit": (drive.get("serial_hash") or "")[:8],
        "capacity": numbers.size(size_bytes) if size_bytes else "",
        "class": told.get("class", ""),
        "interface": told.get("interface") or interface(drive, first),
        "flash": told.get("flash", ""),
        "state": state_words(entry["state"]) if entry["state"] is not None else "",
        "data written": payload_words(entry["payload"]) or "",
        "idle": idle_words(entry["idle"]) if entry["idle"] else "",
        "runs": str(entry["n"]),
        "price": told.get("price", ""),
        "predecessor": told.get("predecessor", ""),
        "rivals": told.get("rivals", ""),
        "relation": "",
    }


def interface(drive: dict, run: dict) -> str:
    """How the drive was attached, as the run saw it; "" where it did not."""
    link = (run.get("environment") or {}).get("link") or {}
    speed, width = link.get("speed_gts"), link.get("width")
    if speed and width:
        return f"PCIe {_GENERATIONS[speed]} x{width:g}" if speed in _GENERATIONS else f"PCIe, {speed:g} GT/s x{width:g}"
    if drive.get("kind") in _KINDS:
        return _KINDS[drive["kind"]]
    name = drive.get("name") or ""
    return "NVMe" if name.startswith("nvme") else "SATA or SAS" if name.startswith("sd") else ""


def hues_of(page_entries) -> dict | None:
    """The property that colour tells: {"title", "of": {label: value}}; None where no property sets two drives apart."""
    for name in HUES:
        of = {entry.key: entry.facts.get(name) or "not told" for entry in page_entries}
        if 1 < len(set(of.values())) <= len(page_entries) and len(set(of.values())) <= 8:
            return {"title": name, "of": of}
    return None


def filters_of(page_entries) -> tuple[str, ...]:
    """Facts by which a reader may filter: those of which the drives have at least two."""
    return tuple(name for name in FILTERS if len({entry.facts.get(name) for entry in page_entries}) > 1)


def _over_sections(ones, catalogue):
    """Facts of one drive, over the sections in which it stands: what is of its runs may differ there."""
    first, *others = [facts_of(one, catalogue) for one in ones]
    for name in ("state", "data written", "idle"):
        first[name] = "; ".join(dict.fromkeys(facts[name] for facts in (first, *others) if facts[name]))
    counts = sorted({one["n"] for one in ones})
    return {**first, "runs": f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])}


def _verdict(ones, titles):
    """The worst of them; a reason that is of some of the sections says of which."""
    reasons = {}
    for one, title in zip(ones, titles, strict=True):
        for reason in one["verdict"]["reasons"]:
            reasons.setdefault((reason["level"], reason["text"]), []).append(title)
    told = [{"level": level, "text": text if len(where) == len(ones) else f"{text} ({'; '.join(where)})"}
            for (level, text), where in reasons.items()]
    return {"level": max((one["verdict"]["level"] for one in ones), key=LEVELS.index), "reasons": told}
