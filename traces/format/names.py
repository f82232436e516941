"""Names of devices, and of threads and files: those that the rows of a trace refer to, which are stored in it, and the
kernel's.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from blkreel.common.units import counted

from .schema import Metadata
from .trace import Trace

# Kernel threads issue I/O on behalf of others. A trace has no other sign of them than their names.
KERNEL_NAME = re.compile(r"(kworker/|jbd2/|ext4lazyinit|kswapd|kcompactd|khugepaged|loop\d|dmcrypt_write|dm_|kdmflush|"
                         r"md\d+_|raid\d|bcache|xfsaild/|xfs-|xfs_|btrfs-|btrfs_|f2fs_|txg_|z_wr_|kthreadd|swapper/)")

_DEVICES_LISTED = 12


def devices_listed(trace: Trace, ios: Mapping[int, int]) -> str:
    """`0 (sda, 12 I/Os), 1 (sdb, 1 I/O)`, and of more devices how many follow. ios: of each device by its number."""
    table = trace.metadata.get("devices") or []
    texts = []
    for number in sorted(ios)[:_DEVICES_LISTED]:
        device = table[number] if 0 <= number < len(table) else {}
        texts.append(f"{number} ({device.get('name') or device.get('model') or 'unnamed'}, "
                     f"{counted(ios[number], 'I/O')})")
    return ", ".join(texts) + (f" and {len(ios) - len(texts):,} more" if len(ios) > len(texts) else "")


class NamesInRows:
    """add() takes rows; then metadata() has the `threads` and `files` that they refer to.

    names: metadata with all `threads` and `files`. Without `files` those of metadata() stay as they are.
    """

    def __init__(self, names: Metadata):
        self._tids = _Ids(int(tid) for tid in names.get("threads") or {})
        self._inodes = _Ids(file["inode"] for file in names.get("files") or [])
        self._names_files = "files" in names

    def add(self, columns: dict[str, np.ndarray]) -> None:
        self._tids.add(columns["tid"])
        for name in ("used_by", "woken_by"):
            if name in columns:
                self._tids.add(columns[name])
        if "inode" in columns:
            self._inodes.add(columns["inode"])

    def metadata(self, metadata: Metadata) -> Metadata:
        metadata = dict(metadata)
        if metadata.get("threads"):
            tids = self._tids.occurring()
            metadata["threads"] = {tid: thread for tid, thread in metadata["threads"].items() if int(tid) in tids}
        if metadata.get("files") and self._names_files:
            inodes = self._inodes.occurring()
            metadata["files"] = [file for file in metadata["files"] if file["inode"] in inodes]
        return metadata


class _Ids:
    """Which of these ids occur. Rows may have many more ids than there are names."""

    def __init__(self, ids: Iterable[int]):
        self._ids = np.unique(np.fromiter((number for number in ids if abs(number) < 1 << 63), np.int64))
        self._occurs = np.zeros(len(self._ids), bool)

    def add(self, ids: np.ndarray) -> None:
        if len(self._ids):
            at = np.searchsorted(self._ids, ids).clip(max=len(self._ids) - 1)
            self._occurs[at[self._ids[at] == ids]] = True

    def occurring(self) -> set[int]:
        return set(self._ids[self._occurs].tolist())
