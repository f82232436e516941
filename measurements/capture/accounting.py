"""Cost of processes: processor time, memory, and run time of their BPF programs as counted by the kernel."""

import threading
from contextlib import contextmanager
from pathlib import Path

STATS = Path("/proc/sys/kernel/bpf_stats_enabled")


def family(pid):
    """Ids of a process and its living descendants."""
    pids = [pid]
    for process in pids:
        for task in Path("/proc", str(process), "task").glob("*/children"):
            pids += [int(child) for child in _read(task).split()]
    return pids


def kernel_threads():
    """Ids of the children of kthreadd, including those of loop drives and soft interrupts."""
    return [int(child) for child in _read(Path("/proc/2/task/2/children")).split()]


def thread_times(pids):
    """{thread: processor time in ns} of the living threads of these processes."""
    times = {}
    for pid in pids:
        for task in Path("/proc", str(pid), "task").glob("*"):
            words = _read(task / "schedstat").split()
            if words:
                times[int(task.name)] = int(words[0])
    return times


def cpu_ns(pids):
    return sum(thread_times(pids).values())


def pss_bytes(pids):
    total = 0
    for pid in pids:
        for line in _read(Path("/proc", str(pid), "smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


def bpf_objects(pids):
    """BPF objects of these processes: {program id: (run_time_ns, run_cnt)}, {map id: bytes} and the number of links."""
    programs, maps, links = {}, {}, set()
    for pid in pids:
        for info in Path("/proc", str(pid), "fdinfo").glob("*"):
            fields = dict(line.split(":", 1) for line in _read(info).splitlines() if ":" in line)
            if "run_time_ns" in fields:
                programs[int(fields["prog_id"])] = int(fields["run_time_ns"]), int(fields["run_cnt"])
            elif "map_id" in fields:
                maps[int(fields["map_id"])] = int(fields["memlock"])
            elif "link_id" in fields:
                links.add(int(fields["link_id"]))
    return programs, maps, len(links)


def bpf_ns_per_io(before, after, ios):
    """(run time, runs) per I/O between two results of bpf_objects()."""
    shared = before.keys() & after.keys()
    time_ns = sum(after[i][0] - before[i][0] for i in shared)
    runs = sum(after[i][1] - before[i][1] for i in shared)
    return time_ns / max(ios, 1), runs / max(ios, 1)


@contextmanager
def bpf_stats():
    """Enable run time counting of BPF programs. It slows them, so do not measure anything else meanwhile."""
    previous = STATS.read_text()
    STATS.write_text("1")
    try:
        yield
    finally:
        STATS.write_text(previous)


class MemoryWatch:
    """with MemoryWatch(pid) as watch: ...; then watch.peak_bytes of the process and its children."""

    def __init__(self, pids, every_s=0.25):
        self.peak_bytes = 0
        self._pids, self._every_s = pids, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while True:
            self.peak_bytes = max(self.peak_bytes, pss_bytes(self._pids()))
            if self._stop.wait(self._every_s):
                return


def _read(path):
    """Text of the file, empty if the process or thread has just ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
