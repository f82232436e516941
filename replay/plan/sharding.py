"""The shards of a plan: which issuing thread gets each I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sharding:
    """threads: how many, numbered as the shards. note: why fewer than requested.

    by_region(target, offset_bytes) or by_thread(tid) gives the shard of each I/O; both None with one thread.
    """

    threads: int = 1
    by_region: Callable[[np.ndarray | int, np.ndarray], np.ndarray] | None = None
    by_thread: Callable[[np.ndarray], np.ndarray] | None = None
    by: str | None = None
    note: str | None = None

    def account(self) -> dict[str, Any]:
        return {"count": self.threads, "by": self.by, "note": self.note}


SINGLE = Sharding()
