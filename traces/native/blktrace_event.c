/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blktrace_event.h"
#include "codes.h"

#include <endian.h>
#include <string.h>

#define MAGIC 0x65617400u
#define VERSION_OF(magic) ((magic) & 0xff)
#define ACTION_FROM_CGROUP 0x100u
#define CGROUP_BYTES 8
#define CATEGORY_SHIFT 16
#define ZONE_MANAGEMENT (CATEGORY_ZONE_RESET | CATEGORY_ZONE_RESET_ALL | CATEGORY_ZONE_FINISH | \
			 CATEGORY_ZONE_OPEN | CATEGORY_ZONE_CLOSE)
#define MAX_CPUS 65536

static uint64_t number_at(const uint8_t *data, size_t width, bool big_endian)
{
	uint16_t two;
	uint32_t four;
	uint64_t eight;

	switch (width) {
	case 2:
		memcpy(&two, data, sizeof(two));
		return big_endian ? be16toh(two) : le16toh(two);
	case 4:
		memcpy(&four, data, sizeof(four));
		return big_endian ? be32toh(four) : le32toh(four);
	default:
		memcpy(&eight, data, sizeof(eight));
		return big_endian ? be64toh(eight) : le64toh(eight);
	}
}

static enum event_kind version_of(const uint8_t *data, struct blk_event *event, unsigned *version)
{
	uint32_t little = number_at(data, 4, false), big = number_at(data, 4, true);

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

static void read_v7(const uint8_t *data, struct blk_event *event, uint64_t *action)
{
	bool big = event->big_endian;

	*action = number_at(data + 28, 4, big);
	event->pid = number_at(data + 32, 4, big);
	event->device = number_at(data + 36, 4, big);
	event->cpu = number_at(data + 40, 4, big);
	event->status = (int16_t)number_at(data + 44, 2, big);
	event->payload_bytes = number_at(data + 46, 2, big);
}

static void read_v8(const uint8_t *data, struct blk_event *event, uint64_t *action)
{
	bool big = event->big_endian;

	event->pid = number_at(data + 28, 4, big);
	*action = number_at(data + 32, 8, big);
	event->device = number_at(data + 40, 4, big);
	event->cpu = number_at(data + 44, 4, big);
	event->status = (int16_t)number_at(data + 48, 2, big);
	event->payload_bytes = number_at(data + 50, 2, big);
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
	event->sequence = number_at(data + 4, 4, event->big_endian);
	event->time_ns = number_at(data + 8, 8, event->big_endian);
	event->sector = number_at(data + 16, 8, event->big_endian);
	event->bytes = number_at(data + 24, 4, event->big_endian);
	if (version == 7)
		read_v7(data, event, &action);
	else
		read_v8(data, event, &action);
	if (event->cpu >= MAX_CPUS || event->time_ns > INT64_MAX)
		return EVENT_DAMAGED;
	/* Some kernels of the past stored errors as positive numbers. */
	if (event->status > 0)
		event->status = -event->status;
	*size_bytes = header_bytes + event->payload_bytes;
	if (available < *size_bytes)
		return EVENT_CUT;
	event->payload = data + header_bytes;
	event->cgroup = 0;
	if (action & ACTION_FROM_CGROUP) {
		if (event->payload_bytes < CGROUP_BYTES)
			return EVENT_DAMAGED;
		event->cgroup = number_at(event->payload, CGROUP_BYTES, event->big_endian);
		event->payload += CGROUP_BYTES;
		event->payload_bytes -= CGROUP_BYTES;
	}
	event->action = action & 0xffff & ~ACTION_FROM_CGROUP;
	event->category = action >> CATEGORY_SHIFT;
	return EVENT_WHOLE;
}

int event_op(const struct blk_event *event)
{
	uint32_t category = event->category;

	if (category & (ZONE_MANAGEMENT | CATEGORY_PASSTHROUGH))
		return -1;
	if (category & CATEGORY_DISCARD)
		return OP_DISCARD;
	if (category & CATEGORY_WRITE_ZEROES)
		return OP_WRITE_ZEROES;
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
	if (category & CATEGORY_FLUSH)
		flags |= FLAG_PREFLUSH;
	return flags;
}

uint64_t event_payload_number(const struct blk_event *event, size_t at, bool wide, bool big_endian)
{
	size_t width = wide ? 8 : 4;

	if (at + width > event->payload_bytes)
		return 0;
	return number_at(event->payload + at, width, big_endian);
}
