/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Paths of mounts and cgroups. Built with the sanitizers. */
#include "rows/names.h"
#include "cleanup.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE(major, minor) ((major) << 20 | (minor))

static void read_mountinfo(struct mounts *mounts, const char *text)
{
	FILE *file CLEANUP_FCLOSE = fmemopen((void *)(uintptr_t)text, strlen(text), "r");

	assert(file && !mounts_read(mounts, file));
}

static bool is_at(const struct mounts *mounts, uint32_t device, const char *path, const char *point)
{
	const struct mount *mount = mounts_find(mounts, device, path);

	return mount && !strcmp(mount->point, point);
}

static void test_mounts(void)
{
	struct mounts mounts = { 0 };

	read_mountinfo(&mounts,
		"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
		"22 21 8:2 /sub /bind rw - ext4 /dev/sda2 rw\n"
		"23 21 8:2 / /mnt/with\\040space\\134 rw - ext4 /dev/sda2 rw\n"
		"24 21 8:2 / /mnt/later rw - ext4 /dev/sda2 rw\n"
		"25 21 8:3 / /mnt/ends\\04 rw - ext4 /dev/sda3 rw\n"
		"not a line of mountinfo\n"
		"27 21 0:39 /@home\\040x /home rw - btrfs /dev/sda5 rw,subvol=/@home\\040x\n"
		"26 21 8:4 / /mnt/last rw - ext4 /dev/sda4 rw");
	assert(is_at(&mounts, DEVICE(8, 1), "/file", ""));
	assert(is_at(&mounts, DEVICE(8, 2), "/file", "/mnt/with space\\"));
	assert(is_at(&mounts, DEVICE(8, 2), "/subway", "/mnt/with space\\"));
	assert(is_at(&mounts, DEVICE(8, 2), "/sub/file", "/bind") && is_at(&mounts, DEVICE(8, 2), "/sub", "/bind"));
	assert(is_at(&mounts, DEVICE(8, 3), "/file", "/mnt/ends\\04"));
	assert(is_at(&mounts, DEVICE(8, 4), "/file", "/mnt/last"));
	assert(is_at(&mounts, DEVICE(0, 39), "/@home x/file", "/home"));
	assert(!mounts_find(&mounts, DEVICE(0, 39), "/@root/file") && !mounts_find(&mounts, DEVICE(0, 39), "/@home xy"));
	assert(!mounts_find(&mounts, DEVICE(8, 5), "/file"));
	mounts_deinit(&mounts);
}

/* A loop device that is detached, attached to another image and mounted elsewhere has the same number. */
static void test_mounts_change(void)
{
	struct mounts mounts = { 0 };

	read_mountinfo(&mounts, "21 1 8:1 / /one rw - ext4 /dev/sda1 rw\n22 1 8:2 / /two rw - ext4 /dev/sda2 rw\n");
	read_mountinfo(&mounts, "23 1 8:1 / /new rw - ext4 /dev/sda1 rw\n24 1 8:1 / /newer rw - ext4 /dev/sda1 rw\n");
	assert(is_at(&mounts, DEVICE(8, 1), "/file", "/new"));
	assert(is_at(&mounts, DEVICE(8, 2), "/file", "/two"));
	mounts_deinit(&mounts);
}

/* A backslash at each of the places where a fixed buffer of 1,024 bytes would cut an escape. */
static void test_long_mount_points(void)
{
	for (size_t length = 1015; length < 1030; length++) {
		struct mounts mounts = { 0 };
		char line[2048];
		const char *point;

		snprintf(line, sizeof(line), "21 1 8:1 / /%0*d\\040%0100d rw - ext4 /dev/sda1 rw\n", (int)length, 0, 0);
		read_mountinfo(&mounts, line);
		point = mounts_find(&mounts, DEVICE(8, 1), "/file")->point;
		assert(strlen(point) == 1 + length + 1 + 100 && point[1 + length] == ' ');
		mounts_deinit(&mounts);
	}
}

static uint64_t make_directory(const char *path)
{
	struct stat directory;

	assert(!mkdir(path, 0700) && !stat(path, &directory));
	return directory.st_ino;
}

static int remove_entry(const char *path, const struct stat *entry, int type, struct FTW *position)
{
	(void)entry, (void)type, (void)position;
	return remove(path);
}

static void test_one_walk_finds_all_directories(void)
{
	char root[] = "/tmp/blkreel-names-XXXXXX", path[128];
	struct path_map cgroups;
	uint64_t inner, outer;
	struct stat at_root;

	assert(mkdtemp(root) && !stat(root, &at_root));
	snprintf(path, sizeof(path), "%s/outer", root);
	outer = make_directory(path);
	snprintf(path, sizeof(path), "%s/outer/inner", root);
	inner = make_directory(path);
	assert(!path_map_init(&cgroups) && path_map_want(&cgroups, inner) && !path_map_want(&cgroups, inner));
	assert(!cgroups_read(&cgroups, root));
	assert(!strcmp(path_map_get(&cgroups, at_root.st_ino), "/"));
	assert(!strcmp(path_map_get(&cgroups, outer), "/outer"));
	assert(!strcmp(path_map_get(&cgroups, inner), "/outer/inner"));
	path_map_deinit(&cgroups);
	assert(!nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS));
}

/* Threads of unknown cgroups are noted without a path, and more than the queue holds are all written. */
static void test_every_thread_is_written(void)
{
	const struct block_layout *const layouts[] = { &row_layout };
	struct block_header header;
	struct outbox outbox;
	struct names names;
	FILE *spool = tmpfile();
	uint64_t threads = 0;

	assert(spool && !outbox_init(&outbox, fileno(spool), -1, NULL) && !names_init(&names, &outbox, false));
	for (int i = 0; i < 40000; i++) {
		struct thread_record record = { .kind = RECORD_THREAD, .tid = i + 1, .pid = 1, .cgroup = ~0ull, .comm = "a\"" };

		names_add_thread(&names, &record);
		names_add_thread(&names, &record); /* repeated at once: written once */
	}
	names_finish(&names);
	assert(!outbox_finish(&outbox));
	names_deinit(&names);
	outbox_deinit(&outbox);
	assert(!lseek(fileno(spool), 0, SEEK_SET) && !block_read_layout(fileno(spool), layouts, 1));
	while (!block_read_header(fileno(spool), &header)) {
		char *json CLEANUP_FREE = calloc(1, header.payload_bytes + 1);

		assert(header.kind == BLOCK_NOTE && !block_read_exactly(fileno(spool), json, header.payload_bytes));
		for (const char *at = json; (at = strstr(at, ", 1, \"a\\u0022\", \"\", \"\"]")); at++)
			threads++;
	}
	assert(threads == 40000);
	fclose(spool);
}

int main(void)
{
	alarm(120);
	test_mounts();
	test_mounts_change();
	test_long_mount_points();
	test_one_walk_finds_all_directories();
	test_every_thread_is_written();
	return 0;
}
