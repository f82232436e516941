/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "names.h"

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KNOWN_NAMES 256 /* the oldest makes room: a capture sees few cgroups and file systems */
#define OPEN_DIRECTORIES 16

struct known_name {
	uint64_t number;
	bool used;
	char *name;
};

struct known_names {
	struct known_name entries[KNOWN_NAMES];
	size_t next;
};

static struct known_names cgroups, mounts;
static uint64_t wanted_id;
static char *found_path;

static struct known_name *known(struct known_names *names, uint64_t number)
{
	for (size_t i = 0; i < KNOWN_NAMES; i++)
		if (names->entries[i].used && names->entries[i].number == number)
			return &names->entries[i];
	return NULL;
}

static const char *remember(struct known_names *names, uint64_t number, char *name)
{
	struct known_name *entry = &names->entries[names->next++ % KNOWN_NAMES];

	free(entry->name);
	*entry = (struct known_name){ .number = number, .used = true, .name = name };
	return name;
}

/* A mount point comes with spaces and the like as octal: proc_pid_mountinfo(5). */
static void unescape(char *text)
{
	char *out = text;
	unsigned int byte;

	while (*text) {
		if (*text == '\\' && sscanf(text + 1, "%3o", &byte) == 1) {
			*out++ = (char)byte;
			text += 4;
		} else {
			*out++ = *text++;
		}
	}
	*out = '\0';
}

/* Calls back for each mount until told to stop. */
static char *first_mount(bool (*fits)(unsigned int major, unsigned int minor, const char *root, const char *type,
				      uint64_t wanted), uint64_t wanted)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[4096], root[1024], point[1024], *type, *found = NULL;
	unsigned int major, minor;

	if (!file)
		return NULL;
	while (!found && fgets(line, sizeof(line), file)) {
		type = strstr(line, " - ");
		if (!type || sscanf(line, "%*u %*u %u:%u %1023s %1023s", &major, &minor, root, point) != 4)
			continue;
		if (!fits(major, minor, root, type + 3, wanted))
			continue;
		unescape(point);
		found = strdup(strcmp(point, "/") ? point : "");
	}
	fclose(file);
	return found;
}

static bool is_device(unsigned int major, unsigned int minor, const char *root, const char *type, uint64_t wanted)
{
	(void)type;
	return ((uint64_t)major << 32 | minor) == wanted && !strcmp(root, "/");
}

static bool is_unified(unsigned int major, unsigned int minor, const char *root, const char *type, uint64_t wanted)
{
	(void)major, (void)minor, (void)root, (void)wanted;
	return !strncmp(type, "cgroup2 ", 8);
}

const char *mount_of(uint32_t major, uint32_t minor)
{
	uint64_t number = (uint64_t)major << 32 | minor;
	struct known_name *entry = known(&mounts, number);

	return entry ? entry->name : remember(&mounts, number, first_mount(is_device, number));
}

static int look(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
	(void)ftw;
	if (kind != FTW_D || stat->st_ino != wanted_id)
		return 0;
	found_path = strdup(path);
	return 1;
}

/* A cgroup's id is the number of its directory. */
static char *find_cgroup(uint64_t id)
{
	char *root = first_mount(is_unified, 0);
	char *name = NULL;

	if (!root)
		return strdup("");
	wanted_id = id;
	found_path = NULL;
	nftw(root, look, OPEN_DIRECTORIES, FTW_PHYS | FTW_MOUNT);
	if (found_path)
		name = strdup(found_path[strlen(root)] ? found_path + strlen(root) : "/");
	free(found_path);
	free(root);
	return name ? name : strdup("");
}

const char *name_of_cgroup(uint64_t id)
{
	struct known_name *entry = known(&cgroups, id);

	return entry ? entry->name : remember(&cgroups, id, find_cgroup(id));
}
