/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A captured drive in sysfs: its queue depth, and its counters of completed requests. An NVMe multipath head has none
 * of its own: its requests and counters are those of its paths, which are hidden disks.
 */
#pragma once

#include "records.h"

#include <stdbool.h>
#include <stdint.h>

/* I/Os completed since boot, by op of the trace; the kernel counts no write-zeroes apart. */
struct disk_counts {
	uint64_t reads;
	uint64_t writes;
	uint64_t discards;
	uint64_t flushes;
};

/* Tags of a queue: hardware queues, and the highest tag of each, with room for a change of scheduler. */
struct tag_space {
	uint32_t queues;
	uint32_t depth;
};

struct disk_path {
	char name[32];
	uint32_t sequence; /* differs for a later disk with the same name; 0 before Linux 5.15 */
	struct tag_space tags;
};

struct drive {
	unsigned int major;
	unsigned int minor;
	uint32_t sequence; /* differs for a later disk with the same number; 0 before Linux 5.15 */
	bool gone; /* removed; another disk may have its number now */
	bool bio_based; /* no request queue: its bios are recorded */
	bool is_dm;
	enum command_set command_set;
	uint32_t block_bytes;
	struct tag_space tags;
	struct disk_path paths[MAX_DISK_PATHS]; /* of a multipath head */
	uint32_t path_count;
	uint32_t paths_added; /* since it was opened: their requests are not recorded */
	uint32_t paths_removed; /* since it was opened, with their counters */
	struct disk_counts at_start;
	struct disk_counts at_stop;
	uint64_t uncertain; /* completed while the capture was switched on or off: may be on either side */
	uint64_t stuck; /* in flight and without an event, in all readings so far */
	bool idle_at_stop; /* the kernel counted nothing in flight when the capture was stopped */
};

/* Fills a drive from "MAJOR:MINOR" of a whole disk. Prints the reason and returns -1 if there is none. */
int drive_open(struct drive *drive, const char *number);

/* Whether it was unplugged, or removed by its driver. */
bool drive_is_gone(const struct drive *drive);

/* Counts the paths that have come and gone since drive_open(). */
void drive_compare_paths(struct drive *drive);

/* Returns 0 or a negative errno: -ENODEV if it was removed. Counts of paths that are gone are missing. */
int drive_read_counts(const struct drive *drive, struct disk_counts *counts);

/*
 * I/Os in flight by the kernel's count, without flushes. Returns false if it has none: a disk with iostats off, or
 * one that is gone.
 */
bool drive_count_in_flight(const struct drive *drive, uint64_t *count);

/* Whether nothing is in flight by the kernel's count; false if it has none. */
bool drive_is_idle(const struct drive *drive);

uint64_t disk_counts_total(const struct disk_counts *counts);

/*
 * Assigns each drive and each path its range of slots, in config->devices and config->paths. Returns the number of
 * slots, or -1 after an error message if the heads have more than MAX_DISK_PATHS paths.
 */
int64_t drives_assign_slots(const struct drive *drives, uint32_t count, struct capture_config *config);
