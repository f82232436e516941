/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The lines of mountinfo, and names as JSON. Input: the text. */
#include "fuzz.h"
#include "cleanup.h"
#include "rows/names.h"
#include "text.h"

#define RUNS_PER_TABLE 16
#define MAX_PATH (1 << 20) /* longer than an input */

static void read_mounts(const uint8_t *data, size_t size)
{
	FILE *file CLEANUP_FCLOSE = fmemopen((void *)(uintptr_t)data, size, "r");
	static struct mounts mounts;
	static unsigned runs;
	const struct mount *mount;

	/* Of several runs, so that some mounts are gone. */
	if (!(runs++ % RUNS_PER_TABLE))
		mounts_deinit(&mounts);
	REQUIRE(file);
	REQUIRE(!mounts_read(&mounts, file));
	mount = mounts_find(&mounts, 8 << 20 | 1, "/sub/file");
	if (mount)
		REQUIRE(strlen(mount->point) < MAX_PATH && !strncmp("/sub/file", mount->root, strlen(mount->root)));
}

/* The JSON of any bytes is printable ASCII in one string. */
static void print_names(const uint8_t *data, size_t size)
{
	char *json CLEANUP_FREE = NULL;
	TEXT(text) = { 0 };
	size_t length;

	REQUIRE(!text_init(&text));
	print_json_string(text.file, (const char *)data, size);
	json = text_finish(&text);
	REQUIRE(json);
	length = strlen(json);
	REQUIRE(length >= 2 && json[0] == '"' && json[length - 1] == '"');
	for (size_t i = 1; i < length - 1; i++) {
		REQUIRE(json[i] >= 0x20 && json[i] < 0x7f && json[i] != '"');
		if (json[i] == '\\')
			REQUIRE(json[i + 1] == 'u' && i + 5 < length - 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	read_mounts(data, size);
	print_names(data, size);
	return 0;
}
