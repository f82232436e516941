"""Who did how much I/O: sums per thread."""

from dataclasses import dataclass, field

import numpy as np

from .metrics import classes_of


@dataclass
class ThreadSums:
    read_ops: int = 0
    read_bytes: int = 0
    read_service_ns: int = 0
    write_ops: int = 0
    write_bytes: int = 0
    write_service_ns: int = 0


@dataclass
class Threads:
    """Fed a run's batches; `sums` maps tid to what that thread read and wrote."""

    sums: dict[int, ThreadSums] = field(default_factory=dict)

    def feed(self, columns: dict[str, np.ndarray]) -> None:
        kinds = classes_of(columns["op"])
        for kind, name in enumerate(("read", "write")):
            rows = (columns["latency_ns"] >= 0) & (kinds == kind)
            tids, where = np.unique(columns["tid"][rows], return_inverse=True)
            totals = {"ops": np.bincount(where, minlength=len(tids))}
            for total, column in (("bytes", "length_bytes"), ("service_ns", "latency_ns")):
                totals[total] = np.zeros(len(tids), np.int64)
                np.add.at(totals[total], where, columns[column][rows])
            for index, tid in enumerate(tids):
                mine = self.sums.setdefault(int(tid), ThreadSums())
                for total, values in totals.items():
                    key = f"{name}_{total}"
                    setattr(mine, key, getattr(mine, key) + int(values[index]))

    def named(self, names: dict[str, dict]) -> list[dict]:
        """One row per command name and process, largest first: `names` is the `threads` of a trace's metadata.
        A download client's twenty workers are one line; thread ids that the metadata lacks stay apart."""
        rows = {}
        for tid, sums in self.sums.items():
            known = names.get(str(tid), {})
            comm = known.get("comm") or ("unknown" if tid < 0 else f"thread {tid}")
            row = rows.setdefault((comm, known.get("pid")), {
                "name": comm, "pid": known.get("pid"), "threads": 0, **vars(ThreadSums())})
            row["threads"] += 1
            for key, value in vars(sums).items():
                row[key] += value
        return sorted(rows.values(), key=lambda row: (-row["read_bytes"] - row["write_bytes"], row["name"]))
