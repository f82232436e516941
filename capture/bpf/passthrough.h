/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Commands that a program passes to the drive: uring_cmd, SG_IO, NVME_IOCTL_IO_CMD. Their requests have neither an
 * operation nor a place for the block layer. The driver has the command behind the request, in a structure of its own.
 */
#pragma once

#include "maps.h"
#include "request.h"

enum command_kind {
	COMMAND_DECODED,
	COMMAND_UNSEEN, /* I/O without a row */
	COMMAND_OTHER,  /* no I/O, such as a query */
};

/* In blocks of the drive. */
struct command {
	__u64 first;
	__u64 count;
	__u32 op;
	__u32 flags;
};

/* NVM command set: the words of a command. */
#define NVME_WORDS 16
#define NVME_FIRST_LOW 10
#define NVME_FIRST_HIGH 11
#define NVME_COUNT 12
#define NVME_FUA (1u << 30)
#define NVME_DEALLOCATE (1u << 25) /* of write zeroes */

static __always_inline enum command_kind decode_nvme(const void *behind, struct command *command)
{
	__u32 words[NVME_WORDS];
	const void *at = NULL;
	bool has_place = true;

	/* struct nvme_request begins with the address of the command. */
	if (bpf_probe_read_kernel(&at, sizeof(at), behind) || bpf_probe_read_kernel(words, sizeof(words), at))
		return COMMAND_UNSEEN;
	switch (words[0] & 0xff) {
	case 0x00:
		command->op = OP_FLUSH;
		has_place = false;
		break;
	case 0x01:
		command->op = OP_WRITE;
		break;
	case 0x02:
		command->op = OP_READ;
		break;
	case 0x05:
		command->op = OP_COMPARE;
		break;
	case 0x0c:
		command->op = OP_VERIFY;
		break;
	case 0x08:
		command->op = OP_WRITE_ZEROES;
		if (words[NVME_COUNT] & NVME_DEALLOCATE)
			command->flags |= FLAG_MAY_UNMAP;
		break;
	case 0x0d: /* reservations */
	case 0x0e:
	case 0x11:
	case 0x15:
	case 0x12: /* I/O management */
	case 0x1d:
		return COMMAND_OTHER;
	default:
		return COMMAND_UNSEEN;
	}
	if (!has_place)
		return COMMAND_DECODED;
	command->first = (__u64)words[NVME_FIRST_HIGH] << 32 | words[NVME_FIRST_LOW];
	command->count = (words[NVME_COUNT] & 0xffff) + 1;
	if (words[NVME_COUNT] & NVME_FUA)
		command->flags |= FLAG_FUA;
	return COMMAND_DECODED;
}

#define SCSI_BYTES 16
/* Of byte 1, in commands of 10 bytes and more. */
#define SCSI_FUA 0x08
#define SCSI_BYTE_CHECK 0x06 /* of verify: it compares with data */

static __always_inline __u64 big_endian(const __u8 *bytes, int count)
{
	__u64 value = 0;

	for (int i = 0; i < count; i++)
		value = value << 8 | bytes[i];
	return value;
}

static __always_inline enum command_kind decode_scsi(const void *behind, struct command *command)
{
	__u8 bytes[SCSI_BYTES];

	if (!config.scsi_command_at ||
	    bpf_probe_read_kernel(bytes, sizeof(bytes), behind + config.scsi_command_at))
		return COMMAND_UNSEEN;
	switch (bytes[0]) {
	case 0x08:
	case 0x28:
	case 0xa8:
	case 0x88:
		command->op = OP_READ;
		break;
	case 0x0a:
	case 0x2a:
	case 0xaa:
	case 0x8a:
		command->op = OP_WRITE;
		break;
	case 0x2f:
	case 0x8f:
	case 0xaf:
		command->op = bytes[1] & SCSI_BYTE_CHECK ? OP_COMPARE : OP_VERIFY;
		break;
	case 0x35: /* synchronize cache: also of a range, which the trace does not have */
	case 0x91:
		command->op = OP_FLUSH;
		return COMMAND_DECODED;
	case 0x04: /* format unit */
	case 0x2e: /* write and verify */
	case 0x8e:
	case 0xae:
	case 0x41: /* write same */
	case 0x93:
	case 0x42: /* unmap */
	case 0x48: /* sanitize */
	case 0x7f: /* variable length */
	case 0x83: /* copy */
	case 0x89: /* compare and write */
		return COMMAND_UNSEEN;
	default:
		return COMMAND_OTHER;
	}
	switch (bytes[0] >> 5) {
	case 0:
		command->first = big_endian(bytes + 1, 3) & 0x1fffff;
		command->count = bytes[4] ? bytes[4] : 256;
		return COMMAND_DECODED;
	case 1:
		command->first = big_endian(bytes + 2, 4);
		command->count = big_endian(bytes + 7, 2);
		break;
	case 4:
		command->first = big_endian(bytes + 2, 8);
		command->count = big_endian(bytes + 10, 4);
		break;
	default:
		command->first = big_endian(bytes + 2, 4);
		command->count = big_endian(bytes + 6, 4);
		break;
	}
	if (bytes[1] & SCSI_FUA && !op_is_check(command->op))
		command->flags |= FLAG_FUA;
	return command->count ? COMMAND_DECODED : COMMAND_OTHER;
}

/* Fills in operation, place and flags of the slot of a command. Returns false if it becomes no row. */
static __always_inline bool decode_command(struct slot *slot, struct request *rq)
{
	const void *behind = (const void *)rq + bpf_core_type_size(struct request);
	enum command_kind kind = COMMAND_UNSEEN;
	struct command command = { 0 };
	__u32 index = slot->device;
	__u64 bytes;

	if (index >= MAX_DEVICES)
		return false;
	if (config.devices[index].command_set == COMMANDS_NVME)
		kind = decode_nvme(behind, &command);
	else if (config.devices[index].command_set == COMMANDS_SCSI)
		kind = decode_scsi(behind, &command);
	else if (config.devices[index].command_set == COMMANDS_OF_DRIVER)
		kind = COMMAND_OTHER;
	bytes = command.count * config.devices[index].block_bytes;
	if (kind == COMMAND_UNSEEN || bytes > ~0u)
		COUNT(commands_unseen);
	else if (kind == COMMAND_OTHER)
		COUNT(other_ops);
	if (kind != COMMAND_DECODED || bytes > ~0u)
		return false;
	slot->op = command.op;
	slot->sector = command.first * (config.devices[index].block_bytes >> 9);
	slot->length_bytes = bytes;
	slot->flags |= command.flags;
	return true;
}
