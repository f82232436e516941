"""The programs of the laboratory: those of dependent replay, and real ones on a part of their data."""

import sys

from measurements.contention import programs as real
from measurements.replay.dependent_programs import POSTGRES, Program
from measurements.replay.dependent_programs import PROGRAMS as OF_REPLAY

DIVISOR = 4  # of the data of the real programs: the guest is slow
SERVER = (POSTGRES / "initdb", "postgresql")


def real_program(name, key, *needs, needs_avx=False):
    return Program(name, lambda place: [sys.executable, real.__file__, key, place],
                   lambda place: real.fill(place, [key], DIVISOR), needs, needs_avx=needs_avx)


PROGRAMS = [
    *OF_REPLAY,
    real_program("model, read", "read"),
    real_program("model, mmap", "mmap"),
    real_program("model, direct", "direct"),
    real_program("many files", "small"),
    real_program("data scan", "scan", needs_avx=True),
    real_program("database prewarm", "restart", SERVER),
    real_program("database queries", "queries", SERVER),
]
