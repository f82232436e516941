"""A program's trace from a slow drive, replayed on a fast one, takes what the program itself takes there.

That is a matter of time, so of what else the machine does: a comparison counts only where repetitions of the program
itself agree. bench/replay_dependent.py prints the figures.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from dependent import BLKREEL, capture, own_rows, replay, show  # noqa: E402
from dependent_programs import PROGRAMS  # noqa: E402
from drive_pair import MEMORY, CannotMake, fast_drive, slow_drive  # noqa: E402

from blkreel.traces.reader import open_trace  # noqa: E402

pytestmark = pytest.mark.kernel

WITHIN = 0.05
MOST_REPETITIONS = 4
SHOWN = ["fio, think time", "computing", "thread pool", "gzip", "sqlite"]


@pytest.fixture
def prepared(require_root, program, request):
    """A program, the image it reads, and a directory in memory."""
    (chosen,) = [one for one in PROGRAMS if one.name == request.param]
    for name, package in (("chrt", "util-linux"), ("mkfs.ext4", "e2fsprogs"), *chosen.needs):
        program(name, package)
    if not Path("/dev/fuse").exists():
        pytest.skip("needs /dev/fuse: modprobe fuse")
    assert BLKREEL.exists()
    directory = Path(tempfile.mkdtemp(dir=MEMORY, prefix="blkreel-test-"))
    chosen.make_image(directory / "contents")
    yield chosen, directory / "contents", directory
    shutil.rmtree(directory)


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


@pytest.mark.parametrize("prepared", SHOWN, indirect=True)
def test_a_dependent_replay_takes_what_the_program_takes(prepared):
    shown = []
    while len(shown) < MOST_REPETITIONS:
        try:
            shown.append(show(*prepared))
        except CannotMake as reason:
            pytest.skip(str(reason))
        off = statistics.median(one.dependent_off for one in shown)
        if abs(off) <= WITHIN:
            break
    noise = {name: spread([getattr(one, name) for one in shown]) for name in ("fast_s", "dependent_s")}
    if abs(off) > WITHIN and max(noise.values()) > WITHIN:
        pytest.skip(f"the machine is too busy to tell {off:+.0%} from nothing: repetitions differ by "
                    + " and ".join(f"{part:.0%}" for part in noise.values()) + "; run it alone")
    assert abs(off) <= WITHIN, shown
    # The captured times, on the other hand, are those of the slow drive.
    assert statistics.median(one.original_off for one in shown) >= 5 * WITHIN, shown


@pytest.mark.parametrize("prepared", ["sqlite", "make, gcc"], indirect=True)
def test_what_it_waits_for_through_others_is_known(prepared):
    """However busy the machine: nearly all that the program asks for has a known cause, and a replay elsewhere is rid

    of the slow drive's time.
    """
    chosen, image, directory = prepared
    try:
        with slow_drive(image, 20_000_000) as drive:
            slow_s = capture(chosen, drive, directory / "slow.parquet")
    except CannotMake as reason:
        pytest.skip(str(reason))
    own = own_rows(directory / "slow.parquet")
    rows = open_trace(directory / "slow.parquet").table(["waited_on", "latency_ns"]).to_pandas()[own]
    assert (rows.waited_on[1:] >= 0).mean() >= 0.95
    with fast_drive(image) as drive:
        dependent_s = replay(directory / "slow.parquet", drive, "dependent", directory / "run")
    assert dependent_s <= slow_s / 3
