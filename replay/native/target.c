/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "message.h"

const char *const op_names[OP_COUNT] = {
	[OP_READ] = "read",
	[OP_WRITE] = "write",
	[OP_FLUSH] = "flush",
	[OP_DISCARD] = "discard",
	[OP_WRITE_ZEROES] = "write_zeroes",
};

const char *const fidelity_names[FIDELITY_COUNT] = {
	[AS_PLANNED] = "as_planned",
	[ALTERED_FUA] = "fua",
	[ALTERED_FUA_BY_FLUSH] = "fua_by_flush",
	[ALTERED_FUA_WITHOUT_CACHE] = "fua_without_cache",
	[ALTERED_PREFLUSH] = "preflush",
	[ALTERED_PREFLUSH_WITHOUT_CACHE] = "preflush_without_cache",
	[ALTERED_FLUSH] = "flush",
	[ALTERED_FLUSH_WITHOUT_CACHE] = "flush_without_cache",
	[ALTERED_DISCARD] = "discard",
	[ALTERED_WRITE_ZEROES] = "write_zeroes",
	[ALTERED_PRIORITY] = "priority",
	[DROPPED] = "dropped",
};

/* A line from the queue directory in sysfs; a partition has its drive's. Empty where there is none. */
static const char *queue_attribute(dev_t device, const char *name, char *line, int size)
{
	static const char *const places[] = { "queue", "../queue" };
	char path[128];

	*line = 0;
	for (size_t i = 0; i < 2; i++) {
		FILE *file;

		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/%s", major(device), minor(device), places[i],
			 name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (!fgets(line, size, file))
			*line = 0;
		fclose(file);
		break;
	}
	return line;
}

static int64_t queue_limit(dev_t device, const char *name)
{
	char line[32];

	return strtoll(queue_attribute(device, name, line, sizeof(line)), NULL, 10);
}

static bool has_write_cache(dev_t device)
{
	char line[32];

	return !strncmp(queue_attribute(device, "write_cache", line, sizeof(line)), "write back", 10);
}

/* Drives with a queue of requests have a directory `mq`; a partition's is its drive's. */
static bool is_bio_based(dev_t device)
{
	static const char *const places[] = { "mq", "../mq" };
	char path[128];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device), places[i]);
		if (!access(path, F_OK))
			return false;
	}
	return true;
}

/* The kernel refuses this class without CAP_SYS_ADMIN or CAP_SYS_NICE, so ask for it and give it back. */
static bool realtime_priority_allowed(void)
{
	int ours = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);

	if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_RT, 4)))
		return false;
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, ours < 0 ? 0 : ours);
	return true;
}

static int refuse_open(const char *path, int err)
{
	switch (err) {
	case EBUSY:
		complain("%s is in use; unmount it, or stop the dm, md, swap or program that holds it", path);
		return EXIT_REFUSED;
	case EACCES:
	case EPERM:
		complain("no permission to open %s; run it with sudo", path);
		return EXIT_FAILED;
	case EROFS:
		complain("%s is read-only; choose a target that can be written, or a trace without writes", path);
		return EXIT_FAILED;
	case ENOENT:
		complain("%s does not exist; `blkreel drives` lists the drives", path);
		return EXIT_WRONG_USAGE;
	case EINVAL:
		complain("%s does not take direct I/O; choose a block device, or a file on ext4, xfs or tmpfs", path);
		return EXIT_FAILED;
	default:
		complain("cannot open %s: %s", path, strerror(err));
		return EXIT_FAILED;
	}
}

/*
 * What may be outstanding so that the kernel surely takes one more at once. It
 * tells of a completion before it gives the place in the queue back, and an I/O
 * scheduler keeps a quarter from writes.
 */
static int64_t with_margin(int64_t nr_requests)
{
	return nr_requests < 16 ? nr_requests : nr_requests - nr_requests / 4;
}

static int learn_block_device(struct target *target, dev_t device)
{
	uint64_t size_bytes;
	int logical, read_only;

	if (ioctl(target->fd, BLKGETSIZE64, &size_bytes) || ioctl(target->fd, BLKSSZGET, &logical) ||
	    ioctl(target->fd, BLKROGET, &read_only))
		return -errno;
	/* Opening it for writing succeeds all the same; each write would fail. */
	if (read_only && target->may_write)
		return -EROFS;
	target->device = device;
	target->bio_based = is_bio_based(device);
	target->size_bytes = size_bytes;
	target->logical_block_bytes = logical;
	target->discard_max_bytes = queue_limit(device, "discard_max_bytes");
	target->write_zeroes_max_bytes = queue_limit(device, "write_zeroes_max_bytes");
	target->max_io_bytes = queue_limit(device, "max_sectors_kb") * 1024;
	target->queue_requests = target->bio_based ? 0 : with_margin(queue_limit(device, "nr_requests"));
	target->fua = queue_limit(device, "fua");
	target->write_cache = has_write_cache(device);
	return 0;
}

/* What offset and length of a direct I/O on a file must be a multiple of. */
static int64_t file_alignment(int fd)
{
#ifdef STATX_DIOALIGN
	struct statx st;

	if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) && (st.stx_mask & STATX_DIOALIGN) &&
	    st.stx_dio_offset_align)
		return st.stx_dio_offset_align;
#endif
	(void)fd;
	return 512;
}

int target_open(struct target *target, const struct target_options *options)
{
	int flags = options->may_write ? O_RDWR : O_RDONLY;
	struct stat st;
	int err;

	*target = (struct target){
		.path = options->path ? options->path : "the null target",
		.fd = -1,
		.may_write = options->may_write,
		.direct = options->direct,
		.realtime_priority = realtime_priority_allowed(),
		.size_bytes = options->null_size_bytes,
		.logical_block_bytes = 512,
		.block_device = true,
		.fua = true,
		.write_cache = true,
		.discard_max_bytes = INT64_MAX,
		.write_zeroes_max_bytes = INT64_MAX,
	};
	if (!options->path)
		return 0;

	if (stat(options->path, &st))
		return refuse_open(options->path, errno);
	if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode)) {
		complain("%s is neither a block device nor a regular file", options->path);
		return EXIT_WRONG_USAGE;
	}
	/* O_EXCL on a block device fails while a file system, swap, dm, md or another O_EXCL opener holds it. */
	if (options->exclusive && S_ISBLK(st.st_mode))
		flags |= O_EXCL;
	if (options->direct)
		flags |= O_DIRECT;
	target->fd = open(options->path, flags | O_CLOEXEC);
	if (target->fd < 0)
		return refuse_open(options->path, errno);
	if (fstat(target->fd, &st))
		return refuse_open(options->path, errno);
	target->block_device = S_ISBLK(st.st_mode);
	if (target->block_device) {
		err = learn_block_device(target, st.st_rdev);
		if (err)
			return refuse_open(options->path, -err);
	} else {
		target->size_bytes = st.st_size;
		target->logical_block_bytes = file_alignment(target->fd);
		target->max_io_bytes = 0;
	}
	if (options->polled && !(target->block_device && options->direct && queue_limit(st.st_rdev, "io_poll"))) {
		complain("%s cannot be polled for completions; give its driver queues for that (nvme.poll_queues=1 on "
			 "the kernel's command line), or leave --polled out", options->path);
		return EXIT_FAILED;
	}
	return 0;
}

int64_t target_merges(const struct target *target)
{
	long long reads = 0, writes = 0, discards = 0;
	char path[64];
	FILE *file;

	if (target->fd < 0 || !target->block_device)
		return 0;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(target->device), minor(target->device));
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* The second field of each of three groups, of four: Documentation/block/stat.rst. */
	if (fscanf(file, "%*s %lld %*s %*s %*s %lld %*s %*s %*s %*s %*s %*s %lld", &reads, &writes, &discards) < 2)
		reads = writes = 0;
	fclose(file);
	return reads + writes + discards;
}

bool target_lost_write_zeroes(const struct target *target)
{
	return target->fd >= 0 && target->block_device && target->write_zeroes_max_bytes &&
	       !queue_limit(target->device, "write_zeroes_max_bytes");
}

bool target_splits(const struct target *target, enum trace_op op, int64_t length_bytes)
{
	switch (op) {
	case OP_READ:
	case OP_WRITE:
		return length_bytes > (target->max_io_bytes ? target->max_io_bytes : PIECE_MAX_BYTES);
	case OP_DISCARD:
		return target->discard_max_bytes && length_bytes > target->discard_max_bytes;
	case OP_WRITE_ZEROES:
		return target->write_zeroes_max_bytes && length_bytes > target->write_zeroes_max_bytes;
	default:
		return false;
	}
}

int64_t target_piece_bytes(const struct target *target)
{
	int64_t request_bytes = target->max_io_bytes;

	if (!request_bytes || request_bytes > PIECE_MAX_BYTES)
		return PIECE_MAX_BYTES;
	return PIECE_MAX_BYTES / request_bytes * request_bytes;
}

/* A file system turns these into its own transactions, and cached writes go out when it likes. */
static bool goes_through_cache(const struct target *target)
{
	return !target->block_device || !target->direct;
}

/* What the block layer makes of flags that a drive may lack: block/blk-flush.c. */
static enum fidelity write_fidelity(const struct target *target, int32_t flags)
{
	bool fua = flags & FLAG_FUA, preflush = flags & FLAG_PREFLUSH;

	if (goes_through_cache(target))
		return fua ? ALTERED_FUA : preflush ? ALTERED_PREFLUSH : AS_PLANNED;
	if (!target->write_cache)
		return fua ? ALTERED_FUA_WITHOUT_CACHE : preflush ? ALTERED_PREFLUSH_WITHOUT_CACHE : AS_PLANNED;
	return fua && !target->fua ? ALTERED_FUA_BY_FLUSH : AS_PLANNED;
}

static enum fidelity command_fidelity(const struct target *target, enum trace_op op, int32_t flags)
{
	switch (op) {
	case OP_WRITE:
		return write_fidelity(target, flags);
	case OP_FLUSH:
		if (goes_through_cache(target))
			return ALTERED_FLUSH;
		return target->write_cache ? AS_PLANNED : ALTERED_FLUSH_WITHOUT_CACHE;
	case OP_DISCARD:
		if (!target->block_device)
			return ALTERED_DISCARD;
		return target->discard_max_bytes ? AS_PLANNED : DROPPED;
	case OP_WRITE_ZEROES:
		/* Without the command the kernel writes pages of zeros. */
		return target->block_device && target->write_zeroes_max_bytes ? AS_PLANNED : ALTERED_WRITE_ZEROES;
	default:
		return AS_PLANNED;
	}
}

enum fidelity target_fidelity(const struct target *target, enum trace_op op, int32_t flags)
{
	bool transfer = op == OP_READ || op == OP_WRITE;
	enum fidelity fidelity = command_fidelity(target, op, flags);

	if (fidelity != AS_PLANNED)
		return fidelity;
	/* The kernel gives no way to say these for other ops. */
	if (op != OP_WRITE && op != OP_FLUSH && (flags & (FLAG_FUA | FLAG_PREFLUSH)))
		return flags & FLAG_FUA ? ALTERED_FUA : ALTERED_PREFLUSH;
	if (!transfer && (flags & (FLAG_PRIORITY_REALTIME | FLAG_PRIORITY_IDLE)))
		return ALTERED_PRIORITY;
	if ((flags & FLAG_PRIORITY_REALTIME) && !target->realtime_priority)
		return ALTERED_PRIORITY;
	return AS_PLANNED;
}
