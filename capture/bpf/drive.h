/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which captured drive a bio goes to. */
#pragma once

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

/* The whole disk of a bio; NULL: none. */
static __always_inline struct gendisk *disk_of_bio(struct bio *bio)
{
	struct block_device *part;

	if (!bpf_core_field_exists(bio->bi_bdev))
		return NULL;
	part = READ(bio, bi_bdev);
	return part ? READ(part, bd_disk) : NULL;
}

static __always_inline __u32 number_of_disk(struct bio *bio)
{
	struct gendisk *disk = disk_of_bio(bio);

	return disk ? (__u32)READ(disk, major) << 20 | (__u32)READ(disk, first_minor) : 0;
}

/* Whether the bio is of a volume (dm, md, bcache), or of another device without requests. */
static __always_inline bool is_of_volume(struct bio *bio)
{
	struct gendisk *disk = disk_of_bio(bio);
	struct request_queue *queue = disk ? READ(disk, queue) : NULL;

	return queue && (!READ(queue, mq_ops) || (__u32)READ(disk, major) == config.dm_major);
}
