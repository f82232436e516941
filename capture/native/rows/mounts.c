/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "mounts.h"
#include "cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GONE 4096 /* file systems that were unmounted */

/* Paths have spaces, tabs, newlines and backslashes as \ooo: proc_pid_mountinfo(5). */
static void unescape(char *text)
{
	char *out = text;

	while (*text) {
		if (text[0] == '\\' && strspn(text + 1, "01234567") >= 3) {
			*out++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
			text += 4;
		} else {
			*out++ = *text++;
		}
	}
	*out = '\0';
}

bool mount_parse(char *line, struct mount *mount, const char **type)
{
	char *fields[5], *rest = strstr(line, " - ");
	unsigned int major, minor;

	if (!rest)
		return false;
	for (size_t i = 0; i < 5; i++) {
		fields[i] = strsep(&line, " ");
		if (!fields[i])
			return false;
	}
	if (sscanf(fields[2], "%u:%u", &major, &minor) != 2)
		return false;
	unescape(fields[3]);
	unescape(fields[4]);
	*mount = (struct mount){ .device = major << 20 | minor, .root = fields[3], .point = fields[4] };
	*type = rest + 3;
	return true;
}

static void release(struct mount *mount)
{
	free(mount->root);
	free(mount->point);
}

void mounts_deinit(struct mounts *mounts)
{
	for (size_t i = 0; i < mounts->count; i++)
		release(&mounts->all[i]);
	free(mounts->all);
	*mounts = (struct mounts){ 0 };
}

static int compare(const void *left, const void *right)
{
	const struct mount *one = left, *other = right;

	if (one->device != other->device)
		return one->device < other->device ? -1 : 1;
	return one->line < other->line ? -1 : one->line > other->line;
}

/* Index of the first mount of a device, or where it would be. */
static size_t first_of(const struct mounts *mounts, uint32_t device)
{
	size_t begin = 0, end = mounts->count;

	while (begin < end) {
		size_t middle = (begin + end) / 2;

		if (mounts->all[middle].device < device)
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

/* Adds a copy. */
static int add(struct mounts *mounts, const struct mount *mount, size_t line)
{
	struct mount *grown = mounts->all;
	struct mount copy = { .device = mount->device, .line = line };

	/* Doubles at each power of two. */
	if (!(mounts->count & (mounts->count - 1)))
		grown = realloc(grown, (mounts->count ? 2 * mounts->count : 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	mounts->all = grown;
	copy.root = strdup(mount->root);
	copy.point = strdup(mount->point);
	if (!copy.root || !copy.point) {
		release(&copy);
		return -ENOMEM;
	}
	mounts->all[mounts->count++] = copy;
	return 0;
}

static void sort(struct mounts *mounts)
{
	if (mounts->count)
		qsort(mounts->all, mounts->count, sizeof(*mounts->all), compare);
}

int mounts_read(struct mounts *mounts, FILE *mountinfo)
{
	struct mounts now CLEANUP(mounts_deinit) = { 0 };
	char *text CLEANUP_FREE = NULL;
	size_t size = 0, read, gone = 0;
	struct mount mount;
	const char *type;

	while (getline(&text, &size, mountinfo) > 0) {
		if (!mount_parse(text, &mount, &type))
			continue;
		if (!strcmp(mount.root, "/"))
			mount.root = (char *)"";
		if (!strcmp(mount.point, "/"))
			mount.point = (char *)"";
		if (add(&now, &mount, now.count))
			return -ENOMEM;
	}
	sort(&now);
	read = now.count;
	for (size_t i = 0; i < mounts->count && gone < MAX_GONE; i++) {
		const struct mounts lines = { .all = now.all, .count = read };
		size_t at = first_of(&lines, mounts->all[i].device);

		if (at < read && now.all[at].device == mounts->all[i].device)
			continue;
		if (add(&now, &mounts->all[i], mounts->all[i].line))
			return -ENOMEM;
		gone++;
	}
	sort(&now);
	mounts_deinit(mounts);
	*mounts = now;
	now = (struct mounts){ 0 };
	return 0;
}

const struct mount *mounts_find(const struct mounts *mounts, uint32_t device, const char *path)
{
	const struct mount *best = NULL;

	for (size_t i = first_of(mounts, device); i < mounts->count && mounts->all[i].device == device; i++) {
		const struct mount *mount = &mounts->all[i];
		size_t length = strlen(mount->root);

		if (strncmp(path, mount->root, length) || (path[length] && path[length] != '/'))
			continue;
		if (!best || length > strlen(best->root))
			best = mount;
	}
	return best;
}
