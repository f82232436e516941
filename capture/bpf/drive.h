/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which captured drive a bio goes to. */
#ifndef BLKREEL_DRIVE_H
#define BLKREEL_DRIVE_H

#include "maps.h"
#include "request.h"

/* The index of a drive in config.devices, -1: not captured. */
static __always_inline __s32 device_index(__u32 number, bool bio_based)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (i >= config.device_count)
			break;
		if (config.devices[i].number == number && !!config.devices[i].bio_based == bio_based)
			return i;
	}
	return -1;
}

/* Of the whole disk; 0: none. */
static __always_inline __u32 number_of_disk(struct bio *bio)
{
	struct block_device *part = READ(bio, bi_bdev);
	struct gendisk *disk;

	if (!part)
		return 0;
	disk = READ(part, bd_disk);
	return (__u32)READ(disk, major) << 20 | (__u32)READ(disk, first_minor);
}

#endif
