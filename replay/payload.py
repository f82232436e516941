"""What is written: how much of it a drive that compresses or deduplicates could save."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Payload:
    """Percent of the data that a compressor takes away, and of the 4 KiB blocks that are copies of others."""

    compressible_percent: int = 0
    duplicates_percent: int = 0

    def account(self) -> dict:
        return {"compressible_percent": self.compressible_percent, "duplicates_percent": self.duplicates_percent}
