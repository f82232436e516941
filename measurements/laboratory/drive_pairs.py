"""The pairs of drives of the laboratory: null_blk, which completes each I/O by a timer of the guest, or emulated."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NullDrive:
    """latency_ns: of each I/O, any number at once. bandwidth_mb_per_s: of all together, 0 for no limit."""

    latency_ns: int
    bandwidth_mb_per_s: int = 0
    is_emulated = False

    @property
    def name(self) -> str:
        latency = f"{self.latency_ns / 1e6:g} ms"
        return f"{latency} {self.bandwidth_mb_per_s} MB/s" if self.bandwidth_mb_per_s else latency

    @property
    def file_name(self) -> str:
        return self.name.replace("/", " per ")

    def attributes(self, size_bytes: int) -> dict[str, int]:
        """Of null_blk: data in memory, completions by a timer (irqmode 2), requests of up to 1 MiB as the emulated."""
        return {"size": -(-size_bytes >> 20), "memory_backed": 1, "irqmode": 2, "completion_nsec": self.latency_ns,
                "mbps": self.bandwidth_mb_per_s, "max_sectors": 2048, "blocksize": 4096}

    def description(self, size_bytes: int) -> str:
        """Of the same as a simulated drive."""
        bandwidth = f"{self.bandwidth_mb_per_s}MB/s" if self.bandwidth_mb_per_s else "1000GB/s"
        return ",".join([f"nil:{size_bytes}", "clock=virtual", "channels=1024", f"link={bandwidth}",
                         *(f"{op}_latency={self.latency_ns}ns" for op in ("read", "write", "flush")),
                         *(f"{op}_bandwidth={bandwidth}" for op in ("read", "write"))])


@dataclass(frozen=True)
class EmulatedDrive:
    """A simulated drive behind ublk, in the guest's time."""

    name: str
    is_emulated = True

    @property
    def file_name(self) -> str:
        return self.name

    def description(self, _size_bytes: int = 0) -> str:
        return f"nil:{self.name}"


Drive = NullDrive | EmulatedDrive


@dataclass(frozen=True)
class DrivePair:
    fast: Drive
    slow: Drive

    @property
    def name(self) -> str:
        return f"{self.fast.name}, {self.slow.name}"

    @property
    def is_emulated(self) -> bool:
        return self.slow.is_emulated

    def directions(self) -> list[tuple[str, Drive, Drive]]:
        """(name, captured drive, replayed drive)."""
        return [("to fast", self.slow, self.fast), ("to slow", self.fast, self.slow)]


PAIRS = {
    "1.5ms": DrivePair(NullDrive(100_000), NullDrive(1_500_000)),
    "8ms": DrivePair(NullDrive(100_000), NullDrive(8_000_000)),
    "60MB/s": DrivePair(NullDrive(100_000), NullDrive(100_000, 60)),
    "20us": DrivePair(NullDrive(20_000), NullDrive(100_000)),
    # The slow ones without a write cache, which depends on all that was written before.
    "nvme-sata": DrivePair(EmulatedDrive("nvme-mid"), EmulatedDrive("sata-tlc,cache=0")),
    "nvme-usb": DrivePair(EmulatedDrive("nvme-mid"), EmulatedDrive("usb,cache=0")),
    **{name.partition(",")[0]: DrivePair(EmulatedDrive("sata-tlc"), EmulatedDrive(name))
       for name in ("sata-qlc,cache=0", "emmc", "usb,cache=0")},
}
