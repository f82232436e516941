"""The test of the first uses of pages that needs Linux 6.12, and programs attached to a function of the kernel."""

from tests.kernel.capture.threads.test_page_uses import (  # noqa: F401
    test_what_a_fault_maps_around_itself_is_not_used_yet,
)
