/* SPDX-License-Identifier: GPL-2.0-or-later */
/* open_memstream and strdup fail in turn: each failure is an error. Built with the sanitizers. */
#include "session/status.h"
#include "cleanup.h"
#include "text.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE(major, minor) ((major) << 20 | (minor))
#define GROWN_BYTES 8

enum { FAIL_TO_OPEN, FAIL_TO_GROW };

FILE *__real_open_memstream(char **bytes, size_t *length);
FILE *__wrap_open_memstream(char **bytes, size_t *length);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

static int stream_failure;
static atomic_int streams_left, copies_left; /* calls until the first that fails */
static atomic_int failed_copies;

FILE *__wrap_open_memstream(char **bytes, size_t *length)
{
	if (atomic_fetch_sub(&streams_left, 1) > 0)
		return __real_open_memstream(bytes, length);
	if (stream_failure == FAIL_TO_GROW)
		return fmemopen(NULL, GROWN_BYTES, "w");
	errno = ENOMEM;
	return NULL;
}

char *__wrap_strdup(const char *text)
{
	if (atomic_fetch_sub(&copies_left, 1) > 0)
		return __real_strdup(text);
	failed_copies++;
	errno = ENOMEM;
	return NULL;
}

/* What status.c needs of the BPF programs and their ledger. */
int ledger_read(struct ledger *ledger, int map_fd)
{
	(void)ledger, (void)map_fd;
	return 0;
}

uint64_t ledger_lost(const struct ledger *ledger)
{
	(void)ledger;
	return 0;
}

void ledger_print(const struct ledger *ledger, FILE *file, uint64_t epoch_ns)
{
	(void)ledger, (void)epoch_ns;
	fputs("\"lost\": {\"total\": 0}", file);
}

uint64_t programs_recursion_misses(const struct programs *programs)
{
	(void)programs;
	return 0;
}

static void fail_after(int streams, int copies)
{
	streams_left = streams;
	copies_left = copies;
	failed_copies = 0;
}

static void test_a_text_that_cannot_grow(void)
{
	TEXT(text) = { 0 };

	fail_after(0, INT_MAX);
	assert(!text_init(&text));
	print_json_string(text.file, "longer than the stream can grow", SIZE_MAX);
	assert(!text_finish(&text));
}

static int read_mounts(struct mounts *mounts)
{
	static const char lines[] =
		"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
		"22 21 8:2 / /mnt/a rw - ext4 /dev/sda2 rw\n"
		"23 21 8:3 / /mnt/b rw - ext4 /dev/sda3 rw\n";
	FILE *file CLEANUP_FCLOSE = fmemopen((void *)(uintptr_t)lines, strlen(lines), "r");

	assert(file);
	return mounts_read(mounts, file);
}

/* A reading that fails changes nothing. */
static void test_mounts(void)
{
	static const char *const points[] = { "", "/mnt/a", "/mnt/b" };
	struct mounts mounts = { 0 };

	for (int copies = 0; copies < 6; copies++) {
		fail_after(INT_MAX, copies);
		assert(read_mounts(&mounts) == -ENOMEM);
		assert(!mounts.count);
	}
	fail_after(INT_MAX, INT_MAX);
	assert(!read_mounts(&mounts));
	fail_after(INT_MAX, 3);
	assert(read_mounts(&mounts) == -ENOMEM);
	for (unsigned i = 0; i < 3; i++)
		assert(!strcmp(mounts_find(&mounts, DEVICE(8, i + 1), "/file")->point, points[i]));
	mounts_deinit(&mounts);
}

static void test_cgroups(void)
{
	char root[] = "/tmp/blkreel-memory-XXXXXX", outer[64], inner[64];
	struct stat directory;

	assert(mkdtemp(root));
	snprintf(outer, sizeof(outer), "%s/outer", root);
	snprintf(inner, sizeof(inner), "%s/outer/inner", root);
	assert(!mkdir(outer, 0700) && !mkdir(inner, 0700) && !stat(inner, &directory));
	for (int copies = 0; copies < 4; copies++) {
		struct path_map cgroups;
		const char *path;

		assert(!path_map_init(&cgroups));
		fail_after(INT_MAX, copies);
		assert(cgroups_read(&cgroups, root) == (copies < 3 ? -ENOMEM : 0));
		path = path_map_get(&cgroups, directory.st_ino);
		assert(copies < 3 ? !path : path && !strcmp(path, "/outer/inner"));
		path_map_deinit(&cgroups);
	}
	assert(!rmdir(inner) && !rmdir(outer) && !rmdir(root));
}

/* Returns the error of the outbox. The spool has this number of whole notes. */
static int write_names(bool files, unsigned records, uint64_t *notes)
{
	const struct block_layout *const layouts[] = { &row_layout };
	FILE *spool CLEANUP_FCLOSE = tmpfile();
	struct block_header header;
	struct outbox outbox;
	struct names names;
	int err;

	assert(spool && !outbox_init(&outbox, fileno(spool), -1, NULL) && !names_init(&names, &outbox, false));
	for (unsigned i = 0; i < records; i++) {
		struct thread_record thread = { .kind = RECORD_THREAD, .tid = (int32_t)i + 1, .pid = 1, .cgroup = ~0ull };
		struct file_record file = { .kind = RECORD_FILE, .filesystem = ~0u, .inode = i + 1 };

		if (files)
			names_add_file(&names, &file);
		else
			names_add_thread(&names, &thread);
	}
	names_finish(&names);
	err = outbox_finish(&outbox);
	names_deinit(&names);
	outbox_deinit(&outbox);
	*notes = 0;
	assert(!lseek(fileno(spool), 0, SEEK_SET) && !block_read_layout(fileno(spool), layouts, 1));
	while (!block_read_header(fileno(spool), &header)) {
		char *json CLEANUP_FREE = calloc(1, header.payload_bytes + 1);

		assert(!block_read_exactly(fileno(spool), json, header.payload_bytes));
		assert(header.kind == BLOCK_NOTE && json[0] == '{' && json[strlen(json) - 1] == '}');
		++*notes;
	}
	return err;
}

/* 64 records are one note. */
static void test_names_end_the_capture(bool files)
{
	uint64_t notes;

	for (int streams = 0; streams < 3; streams++) {
		fail_after(streams, INT_MAX);
		assert(write_names(files, 192, &notes) == -ENOMEM && notes == (uint64_t)streams);
	}
	fail_after(INT_MAX, INT_MAX);
	assert(!write_names(files, 192, &notes) && notes == 3);
	fail_after(INT_MAX, 0);
	assert(write_names(files, 192, &notes) == (failed_copies ? -ENOMEM : 0)); /* none where cgroups are not mounted */
	assert(notes == 3);
	assert(!files || failed_copies);
}

static off_t bytes_of(FILE *file)
{
	struct stat status;

	assert(!fstat(fileno(file), &status));
	return status.st_size;
}

static void test_status(void)
{
	static struct session_options options;
	static struct session session = { .options = &options, .programs = { .kind = "tp_btf" } };
	FILE *spool CLEANUP_FCLOSE = tmpfile(), *lines CLEANUP_FCLOSE = tmpfile();
	int stdout_fd = dup(STDOUT_FILENO);
	off_t before;

	assert(spool && lines && stdout_fd >= 0 && dup2(fileno(lines), STDOUT_FILENO) >= 0);
	session.live = live_create();
	assert(session.live && !outbox_init(&session.outbox, fileno(spool), -1, NULL));
	before = bytes_of(spool);
	fail_after(0, INT_MAX);
	status_live(&session, false);
	status_attached(&session);
	assert(outbox_finish(&session.outbox) == -ENOMEM);
	assert(status_end(&session) == -ENOMEM);
	assert(!bytes_of(lines) && bytes_of(spool) == before);
	/* With memory again the end has the reason. */
	fail_after(INT_MAX, INT_MAX);
	assert(!status_end(&session));
	assert(bytes_of(lines) && bytes_of(spool) > before);
	outbox_deinit(&session.outbox);
	live_destroy(session.live);
	assert(dup2(stdout_fd, STDOUT_FILENO) >= 0 && !close(stdout_fd));
}

int main(void)
{
	alarm(120);
	test_mounts();
	test_cgroups();
	for (stream_failure = FAIL_TO_OPEN; stream_failure <= FAIL_TO_GROW; stream_failure++) {
		test_names_end_the_capture(false);
		test_names_end_the_capture(true);
		test_status();
	}
	stream_failure = FAIL_TO_GROW;
	test_a_text_that_cannot_grow();
	return 0;
}
