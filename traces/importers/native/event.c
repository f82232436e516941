/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "event.h"
#include "codes.h"

#include <endian.h>
#include <string.h>

#define MAGIC 0x65617400u
#define VERSION_OF(magic) ((magic) & 0xff)
#define ACTION_FROM_CGROUP 0x100u
#define CGROUP_BYTES 8
#define CATEGORY_SHIFT 16
#define MAX_CPUS 65536

static uint16_t u16_at(const uint8_t *data, bool big_endian)
{
	uint16_t value;

	memcpy(&value, data, sizeof(value));
	return big_endian ? be16toh(value) : le16toh(value);
}

static uint32_t u32_at(const uint8_t *data, bool big_endian)
{
	uint32_t value;

	memcpy(&value, data, sizeof(value));
	return big_endian ? be32toh(value) : le32toh(value);
}

static uint64_t u64_at(const uint8_t *data, bool big_endian)
{
	uint64_t value;

	memcpy(&value, data, sizeof(value));
	return big_endian ? be64toh(value) : le64toh(value);
}

static enum event_kind version_of(const uint8_t *data, struct blk_event *event, unsigned *version)
{
	uint32_t little = u32_at(data, false), big = u32_at(data, true);

	if ((little & 0xffffff00u) == MAGIC) {
		event->big_endian = false;
		*version = VERSION_OF(little);
	} else if ((big & 0xffffff00u) == MAGIC) {
		event->big_endian = true;
		*version = VERSION_OF(big);
	} else {
		return EVENT_UNKNOWN;
	}
	return *version == 7 || *version == 8 ? EVENT_WHOLE : EVENT_OTHER_VERSION;
}

/* Version 8 moved the pid before an action of 64 bits. */
static uint64_t read_header(const uint8_t *data, unsigned version, struct blk_event *event)
{
	bool big = event->big_endian;
	const uint8_t *rest = data + (version == 7 ? 36 : 40);

	event->sequence = u32_at(data + 4, big);
	event->time_ns = u64_at(data + 8, big);
	event->sector = u64_at(data + 16, big);
	event->bytes = u32_at(data + 24, big);
	event->pid = u32_at(data + (version == 7 ? 32 : 28), big);
	event->device = u32_at(rest, big);
	event->cpu = u32_at(rest + 4, big);
	event->status = (int16_t)u16_at(rest + 8, big);
	event->payload_bytes = u16_at(rest + 10, big);
	return version == 7 ? u32_at(data + 28, big) : u64_at(data + 32, big);
}

enum event_kind event_read(const uint8_t *data, size_t available, struct blk_event *event, size_t *size_bytes)
{
	unsigned version;
	uint64_t action;
	size_t header_bytes;
	enum event_kind kind;

	if (available < 4)
		return EVENT_CUT;
	kind = version_of(data, event, &version);
	if (kind != EVENT_WHOLE)
		return kind;
	header_bytes = version == 7 ? EVENT_HEADER_V7_BYTES : EVENT_HEADER_V8_BYTES;
	if (available < header_bytes)
		return EVENT_CUT;
	action = read_header(data, version, event);
	if (event->cpu >= MAX_CPUS || event->time_ns > INT64_MAX)
		return EVENT_DAMAGED;
	/* Some old kernels stored errors as positive numbers. */
	if (event->status > 0)
		event->status = (int16_t)-event->status;
	*size_bytes = header_bytes + event->payload_bytes;
	if (available < *size_bytes)
		return EVENT_CUT;
	event->payload = data + header_bytes;
	event->cgroup = 0;
	if (action & ACTION_FROM_CGROUP) {
		if (event->payload_bytes < CGROUP_BYTES)
			return EVENT_DAMAGED;
		event->cgroup = u64_at(event->payload, event->big_endian);
		event->payload += CGROUP_BYTES;
		event->payload_bytes = (uint16_t)(event->payload_bytes - CGROUP_BYTES);
	}
	event->action = (uint16_t)(action & 0xffff & ~ACTION_FROM_CGROUP);
	event->category = (uint32_t)(action >> CATEGORY_SHIFT);
	return EVENT_WHOLE;
}

/* The categories that decide on the operation alone; the first one that an event has counts. */
static const struct {
	uint32_t category;
	int8_t op;
} category_ops[] = {
	{ CATEGORY_PASSTHROUGH, -1 },
	{ CATEGORY_DISCARD, OP_DISCARD },
	{ CATEGORY_WRITE_ZEROES, OP_WRITE_ZEROES },
	{ CATEGORY_ZONE_APPEND, OP_ZONE_APPEND },
	{ CATEGORY_ZONE_RESET, OP_ZONE_RESET },
	{ CATEGORY_ZONE_RESET_ALL, OP_ZONE_RESET_ALL },
	{ CATEGORY_ZONE_OPEN, OP_ZONE_OPEN },
	{ CATEGORY_ZONE_CLOSE, OP_ZONE_CLOSE },
	{ CATEGORY_ZONE_FINISH, OP_ZONE_FINISH },
};

int8_t event_op(const struct blk_event *event)
{
	uint32_t category = event->category;

	for (size_t i = 0; i < sizeof(category_ops) / sizeof(category_ops[0]); i++)
		if (category & category_ops[i].category)
			return category_ops[i].op;
	if ((category & CATEGORY_FLUSH) && !event->bytes)
		return OP_FLUSH;
	return category & CATEGORY_WRITE ? OP_WRITE : OP_READ;
}

uint32_t event_flags(const struct blk_event *event)
{
	uint32_t category = event->category, flags = 0;

	if (category & CATEGORY_SYNC)
		flags |= FLAG_SYNC;
	if (category & CATEGORY_META)
		flags |= FLAG_METADATA;
	if (category & CATEGORY_AHEAD)
		flags |= FLAG_READ_AHEAD;
	if (category & CATEGORY_FUA)
		flags |= FLAG_FUA;
	/* Of a flush alone it is the operation; only on data it means a flush before the write. */
	if (category & CATEGORY_FLUSH && event_op(event) != OP_FLUSH)
		flags |= FLAG_PREFLUSH;
	return flags;
}

uint64_t event_payload_number(const struct blk_event *event, size_t at, bool wide, bool big_endian)
{
	const uint8_t *number = event->payload + at;

	if (at + (wide ? 8 : 4) > event->payload_bytes)
		return 0;
	return wide ? u64_at(number, big_endian) : u32_at(number, big_endian);
}
