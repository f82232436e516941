"""Notes beside the rows of a spool: names of threads and files, in the order in which they were first seen."""

from collections.abc import Mapping
from typing import Any, TypedDict

from blkreel.common.files.typed_document import mismatch
from blkreel.traces.format.metadata_types import File
from blkreel.traces.format.schema import Metadata

from .rows_child import Attached


class Note(TypedDict):
    """What each note has."""

    note: str


class _Files(TypedDict):
    files: list[File]


class _Threads(TypedDict):
    """Of each thread: number, process, names of both, and the cgroup if it is known."""

    threads: list[list[int | str | None]]


_NOTES = {"threads": _Threads, "files": _Files, "attached": Attached}
_THREAD = (int, int, str, str, str | None)
_START_KEYS = ("source_format", "epoch_ns", "clock_resolution_ns", "capture_layer", "queue_time_source")


class SpoolNotes:
    """Threads and files in the form of the trace's metadata; take() adds a note. begun: metadata of the start."""

    def __init__(self, threads: dict[str, dict[str, Any]] | None = None,
                 files: list[dict[str, Any]] | None = None):
        self.begun: Metadata = {}
        self.threads: dict[str, dict[str, Any]] = {tid: {**entry} for tid, entry in (threads or {}).items()}
        self.files: list[dict[str, Any]] = list(files or [])
        self._known_files = {_identity(entry) for entry in self.files}

    def take(self, fields: dict[str, Any]) -> None:
        """Raises ValueError for a note that has not the types of its kind."""
        if wrong := mismatch(fields, _NOTES.get(fields["note"], Note)):
            raise ValueError(wrong)
        if fields["note"] == "threads":
            if not all(4 <= len(entry) <= 5 and all(map(isinstance, entry, _THREAD)) for entry in fields["threads"]):
                raise ValueError("no thread")
            for tid, pid, comm, process, *cgroup in fields["threads"]:
                self._take_thread(str(tid), pid, text(comm), text(process), *cgroup)
        elif fields["note"] == "attached":
            self.begun = begun_metadata(fields)
        elif fields["note"] == "files":
            for file in fields["files"]:
                entry = {**file, "path": text(file["path"])}
                if _identity(entry) not in self._known_files:
                    self._known_files.add(_identity(entry))
                    self.files.append(entry)

    def metadata(self) -> Metadata:
        """The keys that are not empty."""
        threads = {tid: self.threads[tid] for tid in sorted(self.threads, key=int)}
        return ({"threads": threads} if threads else {}) | ({"files": self.files} if self.files else {})

    def _take_thread(self, tid: str, pid: int, comm: str, process: str, cgroup: str | None = None) -> None:
        entry = self.threads.setdefault(tid, {"pid": pid, "comm": comm, "process": process, "names": []})
        entry.update(pid=pid, comm=comm, process=process)
        if cgroup:
            entry["cgroup"] = text(cgroup)
        if comm not in entry["names"]:
            entry["names"] = [*entry["names"], comm]


def begun_metadata(attached: Mapping[str, Any]) -> Metadata:
    """The metadata that a source sends when it starts."""
    return {**{key: attached[key] for key in _START_KEYS},
            **({"page_uses": True} if attached.get("page_uses") else {}),
            "clock_pairs": [{"monotonic_ns": attached["epoch_ns"], "realtime_ns": attached["realtime_ns"]}]}


def text(latin: str) -> str:
    """A name. The helper sends bytes as code points, because a name may be cut inside a character."""
    return latin.encode("latin-1").decode(errors="replace")


def _identity(entry: dict[str, Any]) -> tuple[Any, Any, Any]:
    return entry.get("filesystem"), entry.get("inode"), entry.get("path")
