#!/usr/bin/env bash
# boot_systemd.sh ROOT SCRIPT: boot the Debian in ROOT with systemd as process 1 of new namespaces, and run SCRIPT (a path
# inside ROOT) there. Its output is printed at the end; its exit code is returned. Needs root, cgroup v2, and systemd in ROOT.
set -euo pipefail
root=$(realpath "$1")
script=$2

if [ -z "${BLKREEL_BOOT_CGROUP:-}" ]; then
	# A control group of its own, so that systemd does not see that of the caller as the root.
	tree=$(mktemp -d)
	mount -t cgroup2 none "$tree"
	export BLKREEL_BOOT_CGROUP="$tree/blkreel-boot-$$"
	mkdir "$BLKREEL_BOOT_CGROUP"
	code=0
	unshare --mount --propagation private --pid --fork --kill-child --ipc --uts "$0" "$@" || code=$?
	find "$BLKREEL_BOOT_CGROUP" -depth -type d -exec rmdir {} +
	umount "$tree"
	rmdir "$tree"
	cat "$root/run-output" 2>/dev/null || echo "systemd did not start $script" >&2
	rm -f "$root/run-output"
	exit "$code"
fi

if [ -z "${BLKREEL_BOOT_NAMESPACE:-}" ]; then
	echo 0 >"$BLKREEL_BOOT_CGROUP/cgroup.procs"
	export BLKREEL_BOOT_NAMESPACE=1
	exec unshare --cgroup "$0" "$@"
fi

# Own file systems, so that nothing that systemd creates or changes in them reaches the machine.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 none "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 none "$root/dev/pts"
mount -t tmpfs none "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for node in /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty $(find /dev -type b); do
	mkdir -p "$root$(dirname "$node")"
	cp -a "$node" "$root$node"
done
ln -s null "$root/dev/console"
mount -t tmpfs -o mode=755 none "$root/run"

# What would change the kernel of the machine, or waits for a person, does not start.
mkdir -p "$root/run/systemd/system"
for unit in systemd-sysctl.service systemd-modules-load.service systemd-udevd.service systemd-udev-trigger.service \
	kmod-static-nodes.service systemd-tmpfiles-setup-dev.service systemd-binfmt.service systemd-random-seed.service \
	proc-sys-fs-binfmt_misc.automount systemd-remount-fs.service; do
	ln -s /dev/null "$root/run/systemd/system/$unit"
done
cat >"$root/run/systemd/system/run-script.service" <<UNIT
[Unit]
SuccessAction=exit
FailureAction=exit
After=multi-user.target
[Service]
Type=oneshot
ExecStart=$script
StandardOutput=append:/run-output
StandardError=append:/run-output
UNIT
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 container=namespaces \
	/lib/systemd/systemd --unit=run-script.service
