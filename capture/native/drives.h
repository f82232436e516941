/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What sysfs says about a captured drive: how many requests it can hold, and how many it has served. */
#ifndef BLKREEL_DRIVES_H
#define BLKREEL_DRIVES_H

#include "records.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* I/Os completed since boot, by op of the trace; the kernel counts no write-zeroes apart. */
struct disk_counts {
	uint64_t reads;
	uint64_t writes;
	uint64_t discards;
	uint64_t flushes;
};

struct drive {
	unsigned int major;
	unsigned int minor;
	uint32_t sequence; /* tells this disk from a later one that got its number; 0 before 5.15, which has none */
	bool gone; /* it was taken away, though another may stand there now */
	bool bio_based; /* no request queue: its bios are recorded */
	uint32_t queues;
	uint32_t depth; /* highest tag that a queue may give out, with room for a change of scheduler */
	struct disk_counts at_start;
	struct disk_counts at_stop;
	uint64_t uncertain; /* completed while its counters were read and the capture switched: on either side */
	bool idle_at_stop; /* it had nothing in flight when the capture was stopped, by the kernel's own count */
};

/* Fills a drive from "MAJOR:MINOR" of a whole disk. Prints the reason and returns -1 where there is none. */
int drive_open(struct drive *drive, const char *number);

/* Whether it was there and is no longer: unplugged, or taken away by its driver. */
bool drive_is_gone(const struct drive *drive);

/* Returns 0 or a negative errno: -ENODEV where another disk stands in its place. */
int drive_read_counts(const struct drive *drive, struct disk_counts *counts);

/* Whether the kernel says that nothing is in flight; false where it does not say. */
bool drive_is_idle(const struct drive *drive);

uint64_t disk_counts_total(const struct disk_counts *counts);

/* Lays the drives' slots one behind the other. Returns the number of slots. */
size_t drives_lay_out(const struct drive *drives, size_t count, struct device_config *config);

#endif
