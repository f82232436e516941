#!/usr/bin/env bash
# check_deb.sh PACKAGE.deb: install a package in a new Debian 12 system, run it, boot that system in namespaces for the unit
# of the flight recorder, and purge the package. Needs root.
set -euo pipefail
package=$(realpath "$1")
root=$(mktemp -d /var/tmp/blkreel-check-deb.XXXXXX)
chmod 755 "$root"

# The mounts of the new system vanish with this namespace.
if [ -z "${BLKREEL_CHECK_NAMESPACE:-}" ]; then
	rmdir "$root"
	exec env BLKREEL_CHECK_NAMESPACE=1 unshare --mount --propagation private "$0" "$@"
fi
trap 'umount --recursive --lazy "$root/proc" "$root/sys" "$root/dev" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
check() {
	if "${@:2}"; then echo "ok: $1"; else echo "FAILED: $1"; exit 1; fi
}

mmdebstrap --quiet --variant=apt --include=systemd bookworm "$root"
for name in proc sys dev; do mount --rbind "/$name" "$root/$name"; mount --make-rslave "$root/$name"; done
cp "$package" "$root/root/blkreel.deb"
cp /etc/resolv.conf "$root/etc/resolv.conf"
inside apt-get update -qq
inside apt-get install -qq -y --no-install-recommends /root/blkreel.deb >"$root/root/apt.log" 2>&1 ||
	{ cat "$root/root/apt.log"; exit 1; }
rm "$root/root/blkreel.deb" "$root/root/apt.log"

check "version: $(inside blkreel --version)" true
inside blkreel replay sample:game-load --on nil:1GiB -o /root/run --pace asap || [ $? -eq 3 ] # 3: no drive
check "replay without a drive" test -s "$root/root/run/records.parquet"
inside blkreel report /root/run -o /root/run.html >/dev/null
check "report" test -s "$root/root/run.html"
inside blkreel doctor || true
inside blkreel doctor --json >"$root/root/doctor.json" || true
if [ -e /sys/kernel/btf/vmlinux ]; then
	check "BPF programs load for root" grep -q '"name": "BPF programs", "status": "ok"' "$root/root/doctor.json"
fi
for page in blkreel blkreel-capture; do check "man page $page" test -e "$root/usr/share/man/man1/$page.1.gz"; done
for file in bash-completion/completions/blkreel zsh/vendor-completions/_blkreel fish/vendor_completions.d/blkreel.fish; do
	check "completion $file" test -s "$root/usr/share/$file"
done
check "unit of the flight recorder" test -s "$root/lib/systemd/system/blkreel-recorder.service"

inside useradd --groups blkreel member
inside useradd stranger
inside setpriv --reuid member --regid member --init-groups blkreel doctor --json >"$root/root/doctor.json" || true
if [ -e /sys/kernel/btf/vmlinux ]; then
	check "BPF programs load for a member of the group" \
		grep -q '"name": "BPF programs", "status": "ok"' "$root/root/doctor.json"
fi
inside setpriv --reuid stranger --regid stranger --init-groups blkreel doctor --json >"$root/root/doctor.json" || true
check "a user outside the group cannot capture" grep -q 'adduser stranger blkreel' "$root/root/doctor.json"
inside userdel member
inside userdel stranger

if [ -e /sys/kernel/btf/vmlinux ]; then
	cp "$(dirname "$0")/check_recorder.sh" "$root/root"
	check "flight recorder under systemd" "$(dirname "$0")/boot_systemd.sh" "$root" /root/check_recorder.sh # purges
else
	inside apt-get purge -qq -y blkreel >/dev/null 2>&1
fi
left=$(cd "$root" && find . -xdev -iname '*blkreel*' -not -path './root/*')
check "purging leaves no file${left:+: $left}" test -z "$left"
check "purging leaves no group" bash -c "! grep -q blkreel '$root/etc/group'"
