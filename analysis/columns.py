"""The headline table once, for the page and for the terminal: columns with one unit each, cells as text."""

from dataclasses import dataclass

from . import numbers
from .definitions import HEADLINE

TITLES = {
    "read_throughput_mb_s": "Reads", "wait_ns": "Wait", "read_service_ns": "Service, reads",
    "read_latency_p50_ns": "Read p50", "read_latency_p99_ns": "Read p99", "read_response_p99_ns": "Response p99",
    "write_throughput_mb_s": "Writes", "lateness_p99_ns": "Lateness p99",
}
_PERCENTILE_OF = {"read_latency_p50_ns": ("read", "latency"), "read_latency_p99_ns": ("read", "latency"),
                  "read_response_p99_ns": ("read", "response"), "lateness_p99_ns": ("lateness",)}


@dataclass(frozen=True)
class Column:
    """key: name of the headline figure. scale: what its value is divided by to be in `unit`."""

    key: str
    title: str
    meaning: str
    unit: str
    scale: int

    def cell(self, entry: dict) -> dict:
        """{"text", "value", "note", "interval"} of an entry of the document; note says why there is no value, or the
        range of the runs; interval is "low to high" where the runs suffice for one."""
        figure = entry["headline"][self.key]
        value, note = figure["value"], ""
        if value is None:
            return {"text": numbers.MISSING, "value": None, "note": missing(entry, self.key), "interval": ""}
        if figure["smallest"] is not None:
            note = f"{self._text(figure['smallest'])} to {self._text(figure['largest'])}"
        if self.key == "read_throughput_mb_s" and entry["writer"] == "fell behind":
            note = (note + "; " if note else "") + "writer fell behind"
        interval = ""
        if figure["low"] is not None:
            interval = f"{self._text(figure['low'])} to {self._text(figure['high'])}"
            note = f"95 % interval {interval}; runs {note}"
        return {"text": self._text(value), "value": value, "note": note, "interval": interval}

    def _text(self, value):
        return numbers.digits(value / self.scale)


def columns_of(entries: list[dict]) -> list[Column]:
    built = []
    for key, title in TITLES.items():
        scale, unit = 1, "MB/s"
        if key.endswith("_ns"):
            scale, unit = numbers.time_unit([entry["headline"][key]["value"] for entry in entries])
        built.append(Column(key, title, HEADLINE[key].formula, unit, scale))
    return built


def missing(entry: dict, key: str) -> str:
    """Why a headline figure is not given."""
    where = _PERCENTILE_OF.get(key)
    if where:
        shown = entry["figures"]
        for part in where:
            shown = shown[part]
        if shown["n"]:
            return f"n too small (n={shown['n']:,})"
        return "no reads" if where[0] == "read" and not entry["figures"]["read"]["ops"] else "no due times"
    return "no writes" if key == "write_throughput_mb_s" else "no reads"


def sentence(entry: dict) -> str:
    """What the headline figures say of an entry, after its label; empty where it read nothing."""
    figure = {name: value["value"] for name, value in entry["headline"].items()}
    if figure["read_throughput_mb_s"] is None:
        return ""
    said = f"read at {numbers.digits(figure['read_throughput_mb_s'])} MB/s"
    if figure["write_throughput_mb_s"] is not None:
        said += f" while {numbers.size(entry['figures']['write']['bytes'] / entry['n'])} were written in the background"
    said += f"; waiting for it took {numbers.duration(figure['wait_ns'])}"
    if figure["read_latency_p99_ns"] is not None:
        said += f", and 1 read in 100 took {numbers.duration(figure['read_latency_p99_ns'])} or more"
    return said + (", but this run failed its checks." if entry["verdict"]["level"] == "invalid" else ".")


def drive_words(drive: dict) -> str:
    """Model, kind and size of a drive, in a few words."""
    kind = {"loop": "loop device", "disk": "drive", "file": "file"}.get(drive.get("kind"), drive.get("kind"))
    words = [drive.get("model"), drive.get("firmware"), kind if not drive.get("model") else None,
             numbers.size(drive["size_bytes"]) if drive.get("size_bytes") else None]
    return ", ".join(str(word).strip() for word in words if word)


def state_words(state: dict | None) -> str:
    """The state a drive was put in before the run."""
    if not state or not state.get("name"):
        return "not prepared" if state is not None else numbers.MISSING
    words = state["name"] + (" (scaled)" if state.get("scale") not in (None, 1, 1.0) else "")
    if state.get("written_since_bytes"):
        words += f", {numbers.size(state['written_since_bytes'])} written since"
    return words


def payload_words(payload: dict | None) -> str | None:
    """The data that was written, where it is not the default: a drive that compresses had it easier."""
    kinds = [("compressible_percent", "compressible"), ("duplicates_percent", "duplicates")]
    told = [f"{payload[key]} % {word}" for key, word in kinds if payload and payload.get(key)]
    return ", ".join(told) or None


def idle_words(idle: dict | None) -> str:
    """What was done to the trace's idle time."""
    if not idle or idle.get("name") in (None, "original"):
        return "as captured"
    removed = numbers.duration(idle.get("removed_ns") or 0)
    if idle["name"] == "cap":
        return f"capped at {numbers.setting(idle.get('cap_ns') or 0)}, {removed} removed"
    return f"removed ({removed})"
