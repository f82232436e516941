/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "drives.h"
#include "cleanup.h"
#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A scheduler that is set during the capture starts with 2 x 128 tags on every drive. */
#define MIN_DEPTH 256

#define DISK_DIRECTORY_BYTES 64

static void directory_of(const struct drive *drive, char *directory)
{
	snprintf(directory, DISK_DIRECTORY_BYTES, "/sys/dev/block/%u:%u", drive->major, drive->minor);
}

/* A hidden disk has no number in sysfs. */
static void directory_of_path(const struct disk_path *path, char *directory)
{
	snprintf(directory, DISK_DIRECTORY_BYTES, "/sys/class/block/%s", path->name);
}

static FILE *open_attribute(const char *directory, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return fopen(path, "re");
}

static uint32_t read_number(const char *directory, const char *name)
{
	FILE *file CLEANUP_FCLOSE = open_attribute(directory, name);
	unsigned int value;

	return file && fscanf(file, "%u", &value) == 1 ? value : 0;
}

/* Hardware queues are the numbered directories under mq/: their highest number + 1. */
static struct tag_space measure_tags(const char *disk)
{
	struct tag_space tags = { .depth = MIN_DEPTH };
	char path[128], name[32];
	DIR *directory CLEANUP_CLOSEDIR = NULL;
	const struct dirent *entry;
	uint32_t requests = read_number(disk, "queue/nr_requests");

	if (requests > tags.depth)
		tags.depth = requests;
	snprintf(path, sizeof(path), "%s/mq", disk);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		char *end;
		uint32_t number = (uint32_t)strtoul(entry->d_name, &end, 10), depth;

		if (*end || end == entry->d_name)
			continue;
		if (number + 1 > tags.queues)
			tags.queues = number + 1;
		snprintf(name, sizeof(name), "mq/%u/nr_tags", number);
		depth = read_number(disk, name);
		if (depth > tags.depth)
			tags.depth = depth;
	}
	return tags;
}

/*
 * Lists the paths nvmeXcZnY of the head nvmeXnY, without their tags; none of any other drive. Returns their number,
 * of which the first MAX_DISK_PATHS are in `paths`.
 */
static uint32_t list_paths(const struct drive *drive, struct disk_path *paths)
{
	DIR *directory CLEANUP_CLOSEDIR = NULL;
	char link[DISK_DIRECTORY_BYTES], target[512], disk[DISK_DIRECTORY_BYTES], rest;
	unsigned int instance, namespace, of, controller, part;
	const struct dirent *entry;
	const char *name;
	uint32_t count = 0;
	ssize_t length;

	directory_of(drive, link);
	length = readlink(link, target, sizeof(target) - 1);
	if (length <= 0)
		return 0;
	target[length] = 0;
	name = strrchr(target, '/');
	if (!name || sscanf(name + 1, "nvme%un%u%c", &instance, &namespace, &rest) != 2)
		return 0;
	directory = opendir("/sys/class/block");
	while (directory && (entry = readdir(directory))) {
		struct disk_path *path;

		if (sscanf(entry->d_name, "nvme%uc%un%u%c", &of, &controller, &part, &rest) != 3 || of != instance ||
		    part != namespace)
			continue;
		if (count++ >= MAX_DISK_PATHS)
			continue;
		path = &paths[count - 1];
		memset(path, 0, sizeof(*path));
		snprintf(path->name, sizeof(path->name), "%.31s", entry->d_name);
		directory_of_path(path, disk);
		path->sequence = read_number(disk, "diskseq");
	}
	return count;
}

static const struct disk_path *find_path(const struct disk_path *paths, uint32_t count, const struct disk_path *path)
{
	for (uint32_t i = 0; i < count; i++)
		if (paths[i].sequence == path->sequence && !strcmp(paths[i].name, path->name))
			return &paths[i];
	return NULL;
}

void drive_compare_paths(struct drive *drive)
{
	struct disk_path now[MAX_DISK_PATHS];
	uint32_t count = list_paths(drive, now), known = 0;

	for (uint32_t i = 0; i < count && i < MAX_DISK_PATHS; i++)
		known += find_path(drive->paths, drive->path_count, &now[i]) != NULL;
	drive->paths_added = count - known;
	drive->paths_removed = drive->path_count - known;
}

static enum command_set command_set_of(const char *directory)
{
	static const char *const attributes[] = { [COMMANDS_NVME] = "nsid",
						  [COMMANDS_SCSI] = "device/scsi_level",
						  [COMMANDS_OF_DRIVER] = "device/features" };

	for (enum command_set set = COMMANDS_NVME; set <= COMMANDS_OF_DRIVER; set++) {
		FILE *file CLEANUP_FCLOSE = open_attribute(directory, attributes[set]);

		if (file)
			return set;
	}
	return COMMANDS_UNKNOWN;
}

int drive_open(struct drive *drive, const char *number)
{
	char disk[DISK_DIRECTORY_BYTES], dm[DISK_DIRECTORY_BYTES + 4];

	memset(drive, 0, sizeof(*drive));
	drive->stuck = UINT64_MAX;
	if (sscanf(number, "%u:%u", &drive->major, &drive->minor) != 2)
		return report_error(NULL, "invalid --device: %s: not MAJOR:MINOR", number);
	directory_of(drive, disk);
	drive->sequence = read_number(disk, "diskseq");
	drive->command_set = command_set_of(disk);
	drive->block_bytes = read_number(disk, "queue/logical_block_size");
	drive->tags = measure_tags(disk);
	drive->path_count = list_paths(drive, drive->paths);
	drive->bio_based = !drive->tags.queues && !drive->path_count;
	snprintf(dm, sizeof(dm), "%s/dm", disk);
	drive->is_dm = !access(dm, F_OK);
	if (drive->path_count > MAX_DISK_PATHS)
		return report_error("capture with fewer paths, or on another drive", "%s has %u paths: at most %d are recorded",
				    number, drive->path_count, MAX_DISK_PATHS);
	for (uint32_t i = 0; i < drive->path_count; i++) {
		directory_of_path(&drive->paths[i], disk);
		drive->paths[i].tags = measure_tags(disk);
	}
	if (drive_read_counts(drive, &drive->at_start))
		return report_error("see: lsblk", "no such drive: %s", number);
	return 0;
}

bool drive_is_gone(const struct drive *drive)
{
	char disk[DISK_DIRECTORY_BYTES];

	directory_of(drive, disk);
	return (access(disk, F_OK) && errno == ENOENT) || read_number(disk, "diskseq") != drive->sequence;
}

/* Adds those of one disk. Returns 0 or a negative errno. */
static int add_counts(const char *disk, struct disk_counts *counts)
{
	FILE *file CLEANUP_FCLOSE = open_attribute(disk, "stat");
	struct disk_counts own = { 0 };

	if (!file)
		return -errno;
	/* reads 1, writes 5, discards 12, flushes 16: Documentation/block/stat.rst; older kernels have fewer. */
	if (fscanf(file, "%" SCNu64 " %*u %*u %*u %" SCNu64 " %*u %*u %*u %*u %*u %*u"
		   " %" SCNu64 " %*u %*u %*u %" SCNu64,
		   &own.reads, &own.writes, &own.discards, &own.flushes) < 2)
		return -EPROTO;
	counts->reads += own.reads;
	counts->writes += own.writes;
	counts->discards += own.discards;
	counts->flushes += own.flushes;
	return 0;
}

/* The counters of a multipath head stay 0 before Linux 6.4. */
int drive_read_counts(const struct drive *drive, struct disk_counts *counts)
{
	char disk[DISK_DIRECTORY_BYTES];
	int err = 0;

	memset(counts, 0, sizeof(*counts));
	directory_of(drive, disk);
	if (!drive->path_count)
		err = add_counts(disk, counts);
	for (uint32_t i = 0; i < drive->path_count; i++) {
		directory_of_path(&drive->paths[i], disk);
		(void)add_counts(disk, counts); /* drive_compare_paths() reports it */
	}
	if (err && err != -EPROTO)
		return err;
	return drive_is_gone(drive) ? -ENODEV : err;
}

static bool add_in_flight(const char *disk, uint64_t *count)
{
	FILE *file CLEANUP_FCLOSE = open_attribute(disk, "inflight");
	unsigned int reads, writes;

	/* With iostats off, some kernels count nothing here either. */
	if (!read_number(disk, "queue/iostats") || !file || fscanf(file, "%u %u", &reads, &writes) != 2)
		return false;
	*count += (uint64_t)reads + writes;
	return true;
}

bool drive_count_in_flight(const struct drive *drive, uint64_t *count)
{
	char disk[DISK_DIRECTORY_BYTES];

	*count = 0;
	directory_of(drive, disk);
	if (!drive->path_count)
		return add_in_flight(disk, count);
	for (uint32_t i = 0; i < drive->path_count; i++) {
		directory_of_path(&drive->paths[i], disk);
		if (!add_in_flight(disk, count))
			return false;
	}
	return true;
}

bool drive_is_idle(const struct drive *drive)
{
	uint64_t count;

	return drive_count_in_flight(drive, &count) && !count;
}

uint64_t disk_counts_total(const struct disk_counts *counts)
{
	return counts->reads + counts->writes + counts->discards + counts->flushes;
}

static struct slot_range take_slots(const struct tag_space *tags, uint32_t *slots)
{
	struct slot_range range = { .queues = tags->queues, .depth = tags->depth, .base = *slots };

	range.flush_base = range.base + tags->queues * tags->depth;
	*slots = range.flush_base + tags->queues;
	return range;
}

int64_t drives_assign_slots(const struct drive *drives, uint32_t count, struct capture_config *config)
{
	uint32_t slots = 0;

	config->device_count = count;
	config->path_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		config->devices[i] = (struct device_config){
			.number = drives[i].major << 20 | drives[i].minor,
			.bio_based = drives[i].bio_based,
			.is_dm = drives[i].is_dm,
			.command_set = drives[i].command_set,
			.block_bytes = drives[i].block_bytes,
			.range = take_slots(&drives[i].tags, &slots),
		};
		for (uint32_t j = 0; j < drives[i].path_count; j++) {
			struct path_config *path = &config->paths[config->path_count];

			if (config->path_count++ >= MAX_DISK_PATHS)
				return report_error("capture fewer drives at once",
						    "the drives have more than %d paths together", MAX_DISK_PATHS);
			*path = (struct path_config){ .device = i, .range = take_slots(&drives[i].paths[j].tags, &slots) };
			memcpy(path->name, drives[i].paths[j].name, sizeof(path->name));
		}
	}
	return slots;
}
