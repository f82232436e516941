"""Those tests of tests/kernel that need no loop device's image, on NVMe drives."""

from pathlib import Path

import pytest

from tests.kernel.capture.test_counts import (  # noqa: F401
    test_a_scheduler_between_entry_and_drive_costs_no_row,
    test_buffered_writes_on_a_file_system_add_up_with_the_counters,
    test_every_read_of_fio_is_a_row,
    test_the_reader_is_named_and_its_times_are_plausible,
    test_two_drives_at_once_are_kept_apart,
)
from tests.kernel.capture.test_kinds import (  # noqa: F401
    rows_of,
    test_discards_and_zeroes,
    test_offsets_are_those_of_the_whole_drive,
    test_preflush_of_a_journal_commit_is_kept,
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
