"""The stamps at the start of each 4 KiB that the engine writes (native/payload.h): which run of it wrote them."""

from collections.abc import Sequence

import numpy as np

STAMP_EVERY_BYTES = 4096
STAMP_BYTES = 16
COPY_OFFSET = np.uint64(2**64 - 1)

_COPY_KINDS = 256
# More pieces than any run writes: 4 PiB. What is no stamp of a run passes for one once in 16 million times.
_MOST_PIECES = 1 << 40
_WORD = 2**64
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def mixed(value: int) -> int:
    """As mix64() of payload.c: the finalizer of splitmix64 (Steele, Lea, Flood 2014)."""
    value %= _WORD
    value = (value ^ value >> 30) * _FACTORS[0] % _WORD
    value = (value ^ value >> 27) * _FACTORS[1] % _WORD
    return value ^ value >> 31


def unmixed(value: np.ndarray) -> np.ndarray:
    """What mixed() was given."""
    value = value.astype(np.uint64)
    for shift, factor in ((31, _FACTORS[1]), (27, _FACTORS[0]), (30, 1)):
        # Each shifted xor undoes itself where it is done twice, the second time as far again.
        value = value ^ value >> np.uint64(shift) ^ value >> np.uint64(2 * shift)
        value = value * np.uint64(pow(factor, -1, _WORD))
    return value


def run_of(counter: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
    """Which of the engine's runs wrote the pieces with these stamps, by the seeds they had; −1 for none of them."""
    plain, found = unmixed(counter), np.full(len(counter), -1)
    for run, seed in enumerate(seeds):
        number = plain ^ np.uint64(mixed(seed))
        is_own = (number >= 1) & (number <= _MOST_PIECES)
        is_copy = ~number < _COPY_KINDS
        found[is_own | is_copy] = run
    return found
