"""The drain calls nothing that can block on a file or a directory: checks the undefined symbols of its object file."""

import re
import subprocess
import sys

ALLOWED = {
    # Its ring, its wake-ups and its thread.
    "ring_buffer__new", "ring_buffer__consume", "ring_buffer__free", "epoll_create1", "epoll_ctl", "epoll_wait",
    "eventfd", "eventfd_write", "read", "close", "pthread_create", "pthread_join", "clock_gettime",
    # Rows and names in memory.
    "row_append", "row_append_use", "row_append_wake", "outbox_take", "outbox_post_rows", "names_add_thread",
    "names_add_file", "names_wake", "memset", "memcpy", "memcmp",
}
# Added by compilers: errno, stack protection, fortified read(), sanitizers.
ADDED = re.compile(r"__errno_location|__stack_chk_fail|__read_chk|__(asan|ubsan|tsan)_\w+|_GLOBAL_OFFSET_TABLE_")

listed = subprocess.run(["nm", "--undefined-only", "--format=just-symbols", *sys.argv[1:]], capture_output=True,
                        text=True, check=True).stdout.split()
called = {name for name in listed if not name.endswith(":")}
assert "ring_buffer__consume" in called, "not the drain"
forbidden = {name for name in called - ALLOWED if not ADDED.fullmatch(name)}
sys.exit(f"the drain must not call: {', '.join(sorted(forbidden))}" if forbidden else 0)
