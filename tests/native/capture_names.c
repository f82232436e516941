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

static void read_mountinfo(struct path_map *mounts, const char *text, size_t length)
{
	FILE *file CLEANUP_FCLOSE = fmemopen((void *)(uintptr_t)text, length, "r");

	assert(file && !path_map_init(mounts));
	mounts_read(mounts, file);
}

static void test_mounts(void)
{
	static const char lines[] =
		"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
		"22 21 8:2 /sub /bind rw - ext4 /dev/sda2 rw\n"
		"23 21 8:2 / /mnt/with\\040space\\134 rw - ext4 /dev/sda2 rw\n"
		"24 21 8:2 / /mnt/later rw - ext4 /dev/sda2 rw\n"
		"25 21 8:3 / /mnt/ends\\04 rw - ext4 /dev/sda3 rw\n"
		"not a line of mountinfo\n"
		"26 21 8:4 / /mnt/last rw - ext4 /dev/sda4 rw";
	struct path_map mounts;

	read_mountinfo(&mounts, lines, strlen(lines));
	assert(!strcmp(path_map_get(&mounts, DEVICE(8, 1)), ""));
	assert(!strcmp(path_map_get(&mounts, DEVICE(8, 2)), "/mnt/with space\\"));
	assert(!strcmp(path_map_get(&mounts, DEVICE(8, 3)), "/mnt/ends\\04"));
	assert(!strcmp(path_map_get(&mounts, DEVICE(8, 4)), "/mnt/last"));
	assert(!path_map_get(&mounts, DEVICE(8, 5)));
	path_map_deinit(&mounts);
}

/* A loop device that is detached, attached to another image and mounted elsewhere has the same number. */
static void test_mounts_change(void)
{
	static const char first[] = "21 1 8:1 / /one rw - ext4 /dev/sda1 rw\n22 1 8:2 / /two rw - ext4 /dev/sda2 rw\n";
	static const char second[] = "23 1 8:1 / /new rw - ext4 /dev/sda1 rw\n24 1 8:1 / /newer rw - ext4 /dev/sda1 rw\n";
	FILE *file CLEANUP_FCLOSE = fmemopen((void *)(uintptr_t)second, strlen(second), "r");
	struct path_map mounts;

	read_mountinfo(&mounts, first, strlen(first));
	assert(file && !mounts_read(&mounts, file));
	assert(!strcmp(path_map_get(&mounts, DEVICE(8, 1)), "/new"));
	assert(!strcmp(path_map_get(&mounts, DEVICE(8, 2)), "/two"));
	path_map_deinit(&mounts);
}

/* A backslash at each of the places where a fixed buffer of 1,024 bytes would cut an escape. */
static void test_long_mount_points(void)
{
	for (size_t length = 1015; length < 1030; length++) {
		struct path_map mounts;
		char line[2048];
		const char *point;
		int used = snprintf(line, sizeof(line), "21 1 8:1 / /%0*d\\040%0100d rw - ext4 /dev/sda1 rw\n", (int)length, 0, 0);

		read_mountinfo(&mounts, line, (size_t)used);
		point = path_map_get(&mounts, DEVICE(8, 1));
		assert(point && strlen(point) == 1 + length + 1 + 100 && point[1 + length] == ' ');
		path_map_deinit(&mounts);
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
