"""What stands beside the rows of a spool: the names of threads and files, told as they were first seen."""


_OF_ATTACHED = ("source_format", "epoch_ns", "clock_resolution_ns", "capture_layer", "queue_time_source")


class SpoolNotes:
    """begun, threads and files as the metadata of a trace holds them; take() adds a note of the stream."""

    def __init__(self, threads: dict[str, dict] | None = None, files: list[dict] | None = None):
        self.begun: dict = {}
        self.threads: dict[str, dict] = {tid: {**entry} for tid, entry in (threads or {}).items()}
        self.files: list[dict] = list(files or [])
        self._known_files = {_identity(entry) for entry in self.files}

    def take(self, fields: dict) -> None:
        if fields["note"] == "threads":
            for tid, pid, comm, process, *cgroup in fields["threads"]:
                self._take_thread(str(tid), pid, text(comm), text(process), *cgroup)
        elif fields["note"] == "attached":
            self.begun = begun_metadata(fields)
        elif fields["note"] == "files":
            for told in fields["files"]:
                entry = {**told, "path": text(told["path"])}
                if _identity(entry) not in self._known_files:
                    self._known_files.add(_identity(entry))
                    self.files.append(entry)

    def metadata(self) -> dict:
        """The keys that have something to say."""
        threads = {tid: self.threads[tid] for tid in sorted(self.threads, key=int)}
        return ({"threads": threads} if threads else {}) | ({"files": self.files} if self.files else {})

    def _take_thread(self, tid, pid, comm, process, cgroup=None):
        entry = self.threads.setdefault(tid, {"pid": pid, "comm": comm, "process": process, "names": []})
        entry.update(pid=pid, comm=comm, process=process)
        if cgroup:
            entry["cgroup"] = text(cgroup)
        if comm not in entry["names"]:
            entry["names"] = [*entry["names"], comm]


def begun_metadata(attached: dict) -> dict:
    """The metadata that a source tells when it has begun."""
    return {**{key: attached[key] for key in _OF_ATTACHED},
            "clock_pairs": [{"monotonic_ns": attached["epoch_ns"], "realtime_ns": attached["realtime_ns"]}]}


def text(latin: str) -> str:
    """A name: a helper sends bytes as code points, because a name may be cut inside a character."""
    return latin.encode("latin-1").decode(errors="replace")


def _identity(entry):
    return entry.get("filesystem"), entry.get("inode"), entry.get("path")
