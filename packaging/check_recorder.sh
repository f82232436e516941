#!/usr/bin/env bash
# check_recorder.sh: try the unit of the flight recorder under a running systemd, and purge the package while it records.
# boot_systemd.sh runs it in the system of check_deb.sh.
set -euo pipefail
unit=blkreel-recorder
directory=/var/lib/blkreel/recorder
limit_s=120

check() {
	if "${@:2}"; then echo "ok: $1"; else failed "$1"; fi
}
failed() {
	echo "FAILED: $1"
	systemctl status --no-pager "$unit" || true
	journalctl --no-pager --unit "$unit" | tail -30
	ls -la "$directory" || true
	exit 1
}
wait_for() { # DESCRIPTION COMMAND...
	local deadline=$((SECONDS + limit_s))
	until "${@:2}" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$deadline" ] || failed "$1, within $limit_s s"
		sleep 0.2
	done
	echo "ok: $1"
}
capabilities_are_bounded() { # CAP_SYS_ADMIN is bit 21, CAP_DAC_OVERRIDE bit 1
	local pid bounding
	for pid in $(cat "/sys/fs/cgroup/system.slice/$unit.service/cgroup.procs"); do
		bounding=0x$(sed -n 's/^CapBnd:\t//p' "/proc/$pid/status")
		test $((bounding & (1 << 21 | 1 << 1))) -eq 0 || return 1
	done
}
recording() { grep -q epoch_ns "$directory/.recorder.parquet.spool/metadata.json"; }
write_as() { # NAME: 1 MiB in 16 writes by a program of this name
	cp /bin/dd "/var/tmp/$1"
	"/var/tmp/$1" if=/dev/zero of=/var/tmp/written bs=64K count=16 oflag=direct status=none
	rm "/var/tmp/$1" /var/tmp/written
}
has_ios_of() { # TRACE NAME
	local output
	output=$(blkreel slice "$1" --process "$2" --op write -o /var/tmp/found.parquet 2>&1) || { echo "$output"; return 1; }
	rm /var/tmp/found.parquet
}
saved() { compgen -G "$directory/recorder-*.parquet"; }
saved_by_stop() { test -s "$directory/recorder.parquet" && ! systemctl is-active --quiet "$unit"; }
restarted() { test "$(systemctl show --property NRestarts --value "$unit")" -ge 1 && systemctl is-active --quiet "$unit"; }
upgrade() { DPKG_MAINTSCRIPT_PACKAGE=blkreel DPKG_MAINTSCRIPT_NAME=postinst /var/lib/dpkg/info/blkreel.postinst configure 0; }
helper_pid() { grep -lx blkreel-capture $(sed 's|.*|/proc/&/comm|' "/sys/fs/cgroup/system.slice/$unit.service/cgroup.procs") | cut -d/ -f3; }
started_again() { test "$(main_pid)" != "$before" && systemctl is-active --quiet "$unit"; }
main_pid() { systemctl show --property MainPID --value "$unit"; }
has_no_processes() { test ! -e "/sys/fs/cgroup/system.slice/$unit.service"; }

systemd-analyze verify --man=no "$unit.service"
check "neither started nor enabled by the installation" \
	bash -c "! systemctl is-active --quiet $unit && ! systemctl is-enabled --quiet $unit"
upgrade
check "nor started by an upgrade" bash -c "! systemctl is-active --quiet $unit"
systemctl start "$unit"
check "a start returns when the unit records" recording
check "its processes have the capabilities of the unit only" capabilities_are_bounded

write_as before-reload
systemctl reload "$unit"
wait_for "reload saves a trace" saved
check "it holds the writes" has_ios_of "$(saved)" before-reload
check "recording goes on" systemctl is-active --quiet "$unit"

write_as before-crash
sleep 1 # the helper writes its rows ten times a second
systemctl kill --signal KILL "$unit"
wait_for "the unit starts again after a crash" restarted
check "it records again" recording
check "the trace of the crashed session is complete" has_ios_of "$directory/recorder.parquet" before-crash

before=$(main_pid)
kill -KILL "$(helper_pid)"
wait_for "the unit starts again when its helper was killed" started_again
wait_for "it records again" recording

write_as before-stop
sleep 1
systemctl stop "$unit"
check "stop saves the trace" saved_by_stop
check "it holds the writes" has_ios_of "$directory/recorder.parquet" before-stop
check "a stop is no failure" test "$(systemctl show --property Result --value "$unit")" = success
check "only root can look into the directory" test "$(stat -c %a:%U "$directory")" = 750:root

systemctl start --no-block "$unit"
systemctl stop "$unit"
check "a stop during the start is no failure" test "$(systemctl show --property Result --value "$unit")" = success

systemctl enable --quiet "$unit"
systemctl start "$unit"
before=$(main_pid)
write_as before-upgrade
sleep 1
upgrade
check "an upgrade restarts the recorder" test "$(main_pid)" != "$before"
check "it records again" recording
check "the trace of the session before is complete" has_ios_of "$directory/recorder.parquet" before-upgrade
apt-get purge -qq -y blkreel >/var/tmp/apt.log 2>&1 || { cat /var/tmp/apt.log; failed "purge"; }
rm /var/tmp/apt.log
check "purging stops the recorder" has_no_processes
check "purging disables it" bash -c '! compgen -G "/etc/systemd/system/*/blkreel*"'
journalctl --no-pager --unit "$unit"
