/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "drives.h"
#include "failure.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A scheduler that is chosen while capturing starts with 2 x 128 tags, whatever the drive has. */
#define MIN_DEPTH 256

static int open_attribute(const struct drive *drive, const char *name, FILE **file)
{
	char path[320];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", drive->major, drive->minor, name);
	*file = fopen(path, "re");
	return *file ? 0 : -errno;
}

static uint32_t read_number(const struct drive *drive, const char *name)
{
	unsigned int value = 0;
	FILE *file;

	if (open_attribute(drive, name, &file))
		return 0;
	if (fscanf(file, "%u", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

/* Hardware queues are the numbered directories under mq/. Returns the highest number + 1. */
static uint32_t measure_queues(struct drive *drive)
{
	uint32_t queues = 0;
	char path[320];
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/mq", drive->major, drive->minor);
	directory = opendir(path);
	if (!directory)
		return 0;
	while ((entry = readdir(directory))) {
		char *end;
		unsigned long number = strtoul(entry->d_name, &end, 10);
		uint32_t tags;

		if (*end || end == entry->d_name)
			continue;
		if (number + 1 > queues)
			queues = number + 1;
		snprintf(path, sizeof(path), "mq/%lu/nr_tags", number);
		tags = read_number(drive, path);
		if (tags > drive->depth)
			drive->depth = tags;
	}
	closedir(directory);
	return queues;
}

int drive_open(struct drive *drive, const char *number)
{
	uint32_t requests;

	memset(drive, 0, sizeof(*drive));
	if (sscanf(number, "%u:%u", &drive->major, &drive->minor) != 2)
		return fail(NULL, "%s is not MAJOR:MINOR", number);
	drive->depth = MIN_DEPTH;
	requests = read_number(drive, "queue/nr_requests");
	if (requests > drive->depth)
		drive->depth = requests;
	drive->sequence = read_number(drive, "diskseq");
	drive->queues = measure_queues(drive);
	drive->bio_based = !drive->queues;
	if (drive_read_counts(drive, &drive->at_start))
		return fail("see: lsblk", "there is no whole device %s", number);
	return 0;
}

bool drive_is_gone(const struct drive *drive)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", drive->major, drive->minor);
	return (access(path, F_OK) && errno == ENOENT) || read_number(drive, "diskseq") != drive->sequence;
}

int drive_read_counts(const struct drive *drive, struct disk_counts *counts)
{
	FILE *file;
	int err = open_attribute(drive, "stat", &file);
	int found;

	if (err)
		return err;
	memset(counts, 0, sizeof(*counts));
	/* reads 1, writes 5, discards 12, flushes 16: Documentation/block/stat.rst; older kernels end earlier. */
	found = fscanf(file, "%" SCNu64 " %*u %*u %*u %" SCNu64 " %*u %*u %*u %*u %*u %*u"
		       " %" SCNu64 " %*u %*u %*u %" SCNu64,
		       &counts->reads, &counts->writes, &counts->discards, &counts->flushes);
	fclose(file);
	if (drive_is_gone(drive))
		return -ENODEV;
	return found >= 2 ? 0 : -EPROTO;
}

bool drive_is_idle(const struct drive *drive)
{
	unsigned int reads, writes;
	FILE *file;
	int found;

	/* Of a drive whose counters are switched off, some kernels count nothing here either. */
	if (!read_number(drive, "queue/iostats") || open_attribute(drive, "inflight", &file))
		return false;
	found = fscanf(file, "%u %u", &reads, &writes);
	fclose(file);
	return found == 2 && !reads && !writes;
}

uint64_t disk_counts_total(const struct disk_counts *counts)
{
	return counts->reads + counts->writes + counts->discards + counts->flushes;
}

size_t drives_lay_out(const struct drive *drives, size_t count, struct device_config *config)
{
	size_t slots = 0;

	for (size_t i = 0; i < count; i++) {
		config[i] = (struct device_config){
			.number = drives[i].major << 20 | drives[i].minor,
			.bio_based = drives[i].bio_based,
			.queues = drives[i].queues,
			.depth = drives[i].depth,
			.slot_base = slots,
			.flush_base = slots + (size_t)drives[i].queues * drives[i].depth,
		};
		slots = config[i].flush_base + drives[i].queues;
	}
	return slots;
}
