"""Those tests of tests/kernel that capture with blktrace from a loop device. Those of the engine are in nvme/.

Many machines refuse the command blktrace, because they are locked down.
"""

import subprocess

import pytest

from tests.kernel.capture.conftest import busy  # noqa: F401
from tests.kernel.capture.files.test_file_systems import (  # noqa: F401
    btrfs,
    mount,
    overlay,
    test_a_capture_of_a_directory_on_btrfs,
    test_a_capture_of_a_directory_on_overlayfs,
)
from tests.kernel.capture.recording.test_ends import (  # noqa: F401
    test_an_io_that_is_stuck_during_the_whole_capture_is_reported,
)
from tests.kernel.capture.test_hard_cases import (  # noqa: F401
    captured,
    test_a_drive_that_grows_during_the_capture,
)
from tests.kernel.capture.test_sources import (  # noqa: F401
    drive,
    test_the_counters_agree_on_a_drive_that_is_in_use_when_the_capture_begins,
    test_the_same_job_gives_the_same_rows,
)
from tests.vm.guest.drives import nvme_path


@pytest.fixture(scope="module", autouse=True)
def images_that_take_direct_io():
    """tests/conftest.py puts the images of loop drives into /dev/shm; before 6.6 tmpfs takes no direct I/O."""
    images = nvme_path("GUEST002")
    subprocess.run(["mkfs.ext4", "-q", "-F", images], check=True)
    subprocess.run(["mount", images, "/dev/shm"], check=True)
    yield
    subprocess.run(["umount", "/dev/shm"], check=True)
