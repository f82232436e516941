/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One event of a blktrace stream, version 7 (48-byte header) or 8 (64 bytes, Linux 6.19), of either byte order.
 * include/uapi/linux/blktrace_api.h of the kernel is the format.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVENT_HEADER_V7_BYTES 48
#define EVENT_HEADER_V8_BYTES 64

enum event_action {
	ACTION_QUEUE = 1,
	ACTION_BACK_MERGE = 2,
	ACTION_FRONT_MERGE = 3,
	ACTION_GET_REQUEST = 4,
	ACTION_SLEEP = 5,
	ACTION_REQUEUE = 6,
	ACTION_ISSUE = 7,
	ACTION_COMPLETE = 8,
	ACTION_PLUG = 9,
	ACTION_UNPLUG_IO = 10,
	ACTION_UNPLUG_TIMER = 11,
	ACTION_INSERT = 12,
	ACTION_SPLIT = 13,
	ACTION_BOUNCE = 14,
	ACTION_REMAP = 15,
	ACTION_ABORT = 16,
	ACTION_DRIVER_DATA = 17,
	ACTION_ZONE_PLUG = 18,
	ACTION_ZONE_UNPLUG = 19,
};

/* The actions of a CATEGORY_NOTIFY event. */
enum event_notice {
	NOTICE_PROCESS = 0,
	NOTICE_TIMESTAMP = 1,
	NOTICE_MESSAGE = 2,
};

enum event_category {
	CATEGORY_READ = 1u << 0,
	CATEGORY_WRITE = 1u << 1,
	CATEGORY_FLUSH = 1u << 2,
	CATEGORY_SYNC = 1u << 3,
	CATEGORY_PASSTHROUGH = 1u << 9,
	CATEGORY_NOTIFY = 1u << 10,
	CATEGORY_AHEAD = 1u << 11,
	CATEGORY_META = 1u << 12,
	CATEGORY_DISCARD = 1u << 13,
	CATEGORY_DRIVER_DATA = 1u << 14,
	CATEGORY_FUA = 1u << 15,
	/* of version 8 only */
	CATEGORY_ZONE_APPEND = 1u << 16,
	CATEGORY_ZONE_RESET = 1u << 17,
	CATEGORY_ZONE_RESET_ALL = 1u << 18,
	CATEGORY_ZONE_FINISH = 1u << 19,
	CATEGORY_ZONE_OPEN = 1u << 20,
	CATEGORY_ZONE_CLOSE = 1u << 21,
	CATEGORY_WRITE_ZEROES = 1u << 22,
};

struct blk_event {
	uint64_t time_ns;
	uint64_t sector;
	uint64_t cgroup; /* 0: none */
	uint32_t bytes;
	uint32_t sequence;
	uint32_t category;
	uint32_t pid;
	uint32_t device; /* as the kernel packs it: major << 20 | minor */
	uint32_t cpu;
	uint16_t action;
	int16_t status; /* 0 or a negative errno */
	uint16_t payload_bytes; /* without the cgroup's id */
	bool big_endian;
	const uint8_t *payload;
};

/* The result of reading an event. */
enum event_kind {
	EVENT_WHOLE,
	EVENT_CUT, /* more bytes are needed */
	EVENT_UNKNOWN, /* no event begins here */
	EVENT_OTHER_VERSION, /* an event of an unknown version */
	EVENT_DAMAGED, /* the header contradicts itself */
};

/* Reads one event. size_bytes: its size, if it is whole. The payload points into data. */
enum event_kind event_read(const uint8_t *data, size_t available, struct blk_event *event, size_t *size_bytes);

/* The operation of the trace (codes.h); -1: not I/O, but a passed-through command. */
int8_t event_op(const struct blk_event *event);

/* The flags of the trace. */
uint32_t event_flags(const struct blk_event *event);

/* A number of the payload: `wide` 8 bytes, else 4. Zero if the payload is too short. */
uint64_t event_payload_number(const struct blk_event *event, size_t at, bool wide, bool big_endian);
