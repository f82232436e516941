"""A simulated drive while it is fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from blkreel.replay.fidelity.queue_metrics import READ, WRITE
from blkreel.replay.simulated.spec import PREFIX, SPREAD_SHARES, SimulatedDrive, parse
from blkreel.traces.format.schema import OPS

MIN_LATENCY_NS = 100.0
MAX_SLOWDOWN = 1000.0
_FLUSH = OPS["flush"]


@dataclass
class FittedModel:
    """latency_ns: of the operations in their channel. bandwidth: bytes/s of reads and of writes. link: bytes/s of both
    together, program_ns: for which a write holds a die; None if they cost reads nothing. commands: on which it works at
    once, None for any number. cache: keys of the simulated drive that describe its write cache, with bytes, bytes/s and
    ns; empty if it never filled up. spread: factors of the latencies of reads and writes, at SPREAD_SHARES."""

    size_bytes: int
    channels: int
    latency_ns: list[float]
    bandwidth: list[float]
    read_slowdown: float = 1.0
    link: float | None = None
    program_ns: float | None = None
    commands: int | None = None
    cache: Mapping[str, float] = field(default_factory=dict)
    spread: dict[int, np.ndarray] = field(default_factory=lambda: {op: np.ones(len(SPREAD_SHARES))
                                                                   for op in (READ, WRITE)})

    def words(self) -> dict[str, str]:
        """Keys and values of the simulated drive, as its file has them."""
        def ns(value: float) -> str:
            return f"{max(value, MIN_LATENCY_NS):.0f}ns"

        def spread(op: int) -> str:
            return "/".join(f"{factor:.6g}" for factor in self.spread[op])

        return {"clock": "virtual", "read_latency": ns(self.latency_ns[READ]),
                "write_latency": ns(self.latency_ns[WRITE]), "flush_latency": ns(self.latency_ns[_FLUSH]),
                "channels": str(self.channels), "read_bandwidth": f"{self.bandwidth[READ]:.0f}/s",
                "write_bandwidth": f"{self.bandwidth[WRITE]:.0f}/s", "read_slowdown": f"{self.read_slowdown:.6g}",
                **({} if self.link is None else {"link": f"{self.link:.0f}/s"}),
                **({} if self.program_ns is None else {"program": ns(self.program_ns)}),
                **({} if self.commands is None else {"commands": str(self.commands)}),
                **{key: ns(value) if key == "cache_program" else f"{value:.0f}{'' if key == 'cache' else '/s'}"
                   for key, value in self.cache.items()},
                "read_spread": spread(READ), "write_spread": spread(WRITE)}

    def drive(self) -> SimulatedDrive:
        return parse(",".join([f"{PREFIX}{self.size_bytes}", *(f"{key}={word}" for key, word in self.words().items())]))
