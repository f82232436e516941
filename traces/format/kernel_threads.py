"""Kernel threads, which issue I/O on behalf of others. A trace has no other sign of them than their names."""

import re

KERNEL_NAME = re.compile(r"(kworker/|jbd2/|ext4lazyinit|kswapd|kcompactd|khugepaged|loop\d|dmcrypt_write|dm_|kdmflush|"
                         r"md\d+_|raid\d|bcache|xfsaild/|xfs-|xfs_|btrfs-|btrfs_|f2fs_|txg_|z_wr_|kthreadd|swapper/)")
