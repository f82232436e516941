"""Those tests of tests/kernel that need no loop device's image, on NVMe drives; and file systems there."""

import json
from pathlib import Path

import pytest
from loop_device import ext4

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from tests.kernel.capture.test_counts import (  # noqa: F401
    test_a_scheduler_between_entry_and_drive_costs_no_row,
    test_every_read_of_fio_is_a_row,
    test_the_reader_is_named_and_its_times_are_plausible,
    test_two_drives_at_once_are_kept_apart,
)
from tests.kernel.capture.test_kinds import (  # noqa: F401
    rows_of,
    test_discards_and_zeroes,
    test_offsets_are_those_of_the_whole_drive,
)
from tests.kernel.capture.threads.test_causes import (  # noqa: F401
    test_a_timer_passes_nothing_on,
    test_who_is_told_by_another_waited_for_its_read,
)
from tests.kernel.capture.threads.test_own import (  # noqa: F401
    limited_group,
    test_throttled_io_is_of_its_issuer,
)
from tests.vm.guest.drives import TRACING

# Before block_io_start nobody says for whom a flush is.
if Path(TRACING, "events/block/block_io_start").exists():
    from tests.kernel.capture.test_kinds import test_writes_and_the_flushes_of_fsync  # noqa: F401


@pytest.fixture
def loop_drive(nvme_drives):
    left = iter(nvme_drives)

    def make(size_bytes=0, **options):
        return next(left)

    return make


@pytest.mark.parametrize("options", [[], ["--without-io-start"]])
def test_buffered_writes_on_a_file_system_add_up_with_the_counters(blkreel, loop_drive, tmp_path, options):
    """Merges, journal, flushes with and without data, discards: what the kernel counts is what the trace holds."""
    drive = loop_drive(128 << 20)
    script = ("for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=f$i bs=64k count=16 conv=fsync status=none; done;"
              " sync; rm f1 f3; sync; fstrim .")
    with ext4(drive, tmp_path / "fs", "-o", "discard") as mount:
        result = blkreel("capture", "--path", mount, "-o", tmp_path / "t.parquet", "--json", *options, "--",
                         "sh", "-c", script, cwd=mount)
    summary = json.loads(result.stdout)
    assert summary["devices"] == [str(drive)] and summary["missing"] == []
    counts = summary["diskstats"]["drives"][0]["diskstats"]
    assert counts["flush"] > 0 and counts["discard"] > 0
    assert abs(summary["diskstats"]["difference"]) <= 1
    assert summary["bytes"]["write"] >= 8 << 20


def test_preflush_of_a_journal_commit_is_kept(blkreel, loop_drive, tmp_path):
    drive = loop_drive(64 << 20)
    with ext4(drive, tmp_path / "fs") as mount:
        blkreel("capture", drive, "-o", tmp_path / "t.parquet", "--", "sh", "-c",
                f"for i in 1 2 3; do echo x > {mount}/f$i; sync; done")
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    commits = rows[(rows.op == OPS["write"]) & (rows["flags"] & FLAGS["preflush"] != 0)]
    assert len(commits) >= 1 and (commits["flags"] & FLAGS["fua"] != 0).all()
    assert (rows["flags"] & FLAGS["metadata"] != 0).any()
