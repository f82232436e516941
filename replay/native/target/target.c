/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cleanup.h"
#include "direct_alignment.h"
#include "error.h"
#include "run/exit_code.h"

#define MAX_COMMAND_BLOCKS 65536
#define PAGE_BYTES 4096

const char *const op_names[OP_COUNT] = {
	[OP_READ] = "read",
	[OP_WRITE] = "write",
	[OP_FLUSH] = "flush",
	[OP_DISCARD] = "discard",
	[OP_WRITE_ZEROES] = "write_zeroes",
	[OP_ZONE_APPEND] = "zone_append",
	[OP_ZONE_RESET] = "zone_reset",
	[OP_ZONE_RESET_ALL] = "zone_reset_all",
	[OP_ZONE_OPEN] = "zone_open",
	[OP_ZONE_CLOSE] = "zone_close",
	[OP_ZONE_FINISH] = "zone_finish",
	[OP_VERIFY] = "verify",
	[OP_COMPARE] = "compare",
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
	[ALTERED_ZONE_APPEND] = "zone_append",
	[ALTERED_PRIORITY] = "priority",
	[ALTERED_WRITE_HINT] = "write_hint",
	[ALTERED_ATOMIC] = "atomic",
	[DROPPED] = "dropped",
};

/* Opens a file of the queue directory in sysfs; of a partition, that of its drive. -1: there is none. */
static int open_queue_attribute(dev_t device, const char *name)
{
	static const char *const directories[] = { "queue", "../queue" };
	char path[128];
	int fd = -1;

	for (size_t i = 0; i < 2 && fd < 0; i++) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/%s", major(device), minor(device), directories[i],
			 name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	return fd;
}

/* Reads a file of sysfs as it is now. Empty if that fails, as without the file (fd -1) or the drive. */
static const char *read_attribute(int fd, char *text, size_t size)
{
	ssize_t length = fd < 0 ? -1 : pread(fd, text, size - 1, 0);

	text[length < 0 ? 0 : length] = '\0';
	return text;
}

static const char *queue_attribute(dev_t device, const char *name, char *text, size_t size)
{
	int fd = open_queue_attribute(device, name);

	read_attribute(fd, text, size);
	if (fd >= 0)
		close(fd);
	return text;
}

static int64_t queue_limit(dev_t device, const char *name)
{
	char text[32];

	return strtoll(queue_attribute(device, name, text, sizeof(text)), NULL, 10);
}

static bool has_write_cache(dev_t device)
{
	char text[32];

	return !strncmp(queue_attribute(device, "write_cache", text, sizeof(text)), "write back", 10);
}

/* Drives without zones may have a chunk size too. */
static int64_t zone_bytes(dev_t device)
{
	char text[32];

	queue_attribute(device, "zoned", text, sizeof(text));
	return *text && strncmp(text, "none", 4) ? queue_limit(device, "chunk_sectors") * 512 : 0;
}

static int open_statistics(dev_t device)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(device), minor(device));
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Drives with a request queue have a directory `mq`; a partition uses that of its drive. */
static bool is_bio_based(dev_t device)
{
	static const char *const directories[] = { "mq", "../mq" };
	char path[128];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device), directories[i]);
		if (!access(path, F_OK))
			return false;
	}
	return true;
}

/* Sets the real-time I/O class and restores the old one: the kernel requires CAP_SYS_ADMIN or CAP_SYS_NICE. */
static bool realtime_priority_allowed(void)
{
	long before = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);

	if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_RT, 4)))
		return false;
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, before < 0 ? 0 : before);
	return true;
}

/* Returns 0 or a negative errno. */
static int identify(int fd, struct claimed *identity)
{
	struct stat st;

	*identity = (struct claimed){ .fd = fd };
	if (fstat(fd, &st))
		return -errno;
	if (S_ISREG(st.st_mode)) {
		identity->device = st.st_dev;
		identity->inode = st.st_ino;
	}
	if (!S_ISBLK(st.st_mode))
		return 0;
	identity->node = st.st_rdev;
#ifdef BLKGETDISKSEQ
	if (ioctl(fd, BLKGETDISKSEQ, &identity->diskseq))
		identity->diskseq = 0; /* before Linux 5.15 */
#endif
	return 0;
}

static bool is_same(const struct claimed *a, const struct claimed *b)
{
	return a->device == b->device && a->inode == b->inode && a->node == b->node &&
	       (!a->diskseq || !b->diskseq || a->diskseq == b->diskseq);
}

/* Returns an exit code. */
static int refuse_open(const char *path, int err)
{
	switch (err) {
	case EBUSY:
		report_error("unmount it, or stop the dm, md, swap or program that holds it", "%s is in use", path);
		return EXIT_REFUSED;
	case EACCES:
	case EPERM:
		report_error("run it with sudo", "no permission to open %s", path);
		return EXIT_FAILED;
	case EROFS:
		report_error("choose a writable target, or a trace without writes", "%s is read-only", path);
		return EXIT_FAILED;
	case ENOENT:
		report_error("list the drives: blkreel drives", "%s does not exist", path);
		return EXIT_WRONG_USAGE;
	case EINVAL:
		report_error("choose a block device, or a file on ext4, xfs or tmpfs", "%s does not support direct I/O",
			     path);
		return EXIT_FAILED;
	default:
		report_error(NULL, "cannot open %s: %s", path, strerror(err));
		return EXIT_FAILED;
	}
}

/*
 * How many requests may be outstanding so that the kernel takes another without delay. It frees a tag after it
 * reports the completion, and an I/O scheduler reserves a quarter for reads.
 */
static int64_t with_margin(int64_t nr_requests)
{
	return nr_requests < 16 ? nr_requests : nr_requests - nr_requests / 4;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * The requests of the shortest queue among the paths nvmeXcZnY of a multipath head nvmeXnY or of its partition; 0: it
 * is none. The head itself takes any number, and each path hands what its own queue does not take to io_uring's threads.
 */
static int64_t path_requests(dev_t device)
{
	char link[64], directory[PATH_MAX], pattern[64], text[32];
	unsigned int instance, namespace;
	int64_t requests = 0;
	glob_t paths;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(device), minor(device));
	if (!realpath(link, directory) || sscanf(strrchr(directory, '/'), "/nvme%un%u", &instance, &namespace) != 2)
		return 0;
	snprintf(pattern, sizeof(pattern), "/sys/class/block/nvme%uc*n%u/queue/nr_requests", instance, namespace);
	if (glob(pattern, 0, NULL, &paths))
		return 0;
	for (size_t i = 0; i < paths.gl_pathc; i++) {
		int fd = open(paths.gl_pathv[i], O_RDONLY | O_CLOEXEC);
		int64_t own = strtoll(read_attribute(fd, text, sizeof(text)), NULL, 10);

		if (fd >= 0)
			close(fd);
		requests = requests && own ? smaller(requests, own) : requests + own;
	}
	globfree(&paths);
	return requests;
}

static int read_block_device(struct target *target, dev_t device)
{
	uint64_t size_bytes;
	int logical, read_only;

	if (ioctl(target->fd, BLKGETSIZE64, &size_bytes) || ioctl(target->fd, BLKSSZGET, &logical) ||
	    ioctl(target->fd, BLKROGET, &read_only))
		return -errno;
	/* The open for writing succeeds, but each write would fail. */
	if (read_only && target->may_write)
		return -EROFS;
	target->statistics_fd = open_statistics(device);
	target->write_zeroes_fd = open_queue_attribute(device, "write_zeroes_max_bytes");
	target->bio_based = is_bio_based(device);
	target->size_bytes = (int64_t)size_bytes;
	target->logical_block_bytes = logical;
	target->discard_max_bytes = queue_limit(device, "discard_max_bytes");
	target->write_zeroes_max_bytes = queue_limit(device, "write_zeroes_max_bytes");
	target->zone_bytes = zone_bytes(device);
	target->max_io_bytes = queue_limit(device, "max_sectors_kb") * 1024;
	target->queue_requests = with_margin(target->bio_based ? path_requests(device) :
						    queue_limit(device, "nr_requests"));
	target->fua = queue_limit(device, "fua");
	target->write_cache = has_write_cache(device);
	return 0;
}

/* The number and the node of the character device ngXnY of a namespace nvmeXnY: its neighbor in sysfs. */
static bool find_command_device(dev_t device, char *node, size_t size, dev_t *number)
{
	char link[64], directory[PATH_MAX], path[PATH_MAX + 64], text[32];
	unsigned int instance, namespace, of_major, of_minor;
	FILE *file CLEANUP_FCLOSE = NULL;
	char *name, rest;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(device), minor(device));
	if (!realpath(link, directory))
		return false;
	name = strrchr(directory, '/');
	if (!name || sscanf(name + 1, "nvme%un%u%c", &instance, &namespace, &rest) != 2)
		return false;
	*name = 0;
	snprintf(path, sizeof(path), "%s/ng%un%u/dev", directory, instance, namespace);
	file = fopen(path, "re");
	if (!file || !fgets(text, sizeof(text), file) || sscanf(text, "%u:%u", &of_major, &of_minor) != 2)
		return false;
	snprintf(node, size, "/dev/ng%un%u", instance, namespace);
	*number = makedev(of_major, of_minor);
	return true;
}

/* The limits of the block layer hold for a command too, which it does not split. Returns 0 or an exit code. */
static int open_commands(struct target *target, const struct target_options *options, dev_t device)
{
	int64_t block_bytes = target->logical_block_bytes, segments = queue_limit(device, "max_segments");
	dev_t number = 0;
	struct stat st;
	char node[64];
	int namespace;

	if (!target->block_device || !find_command_device(device, node, sizeof(node), &number)) {
		report_error("name an NVMe drive on Linux 5.19 or later, or omit --passthrough",
			     "%s is no NVMe namespace with a character device", options->path);
		return EXIT_WRONG_USAGE;
	}
	target->command_fd = open(node, (options->may_write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (target->command_fd < 0 || fstat(target->command_fd, &st))
		return refuse_open(node, errno);
	namespace = ioctl(target->command_fd, NVME_IOCTL_ID);
	if (!S_ISCHR(st.st_mode) || st.st_rdev != number || namespace <= 0 ||
	    ioctl(target->fd, NVME_IOCTL_ID) != namespace) {
		report_error("see: ls -l /dev/ng*", "%s is not the character device of %s", node, options->path);
		return EXIT_REFUSED;
	}
	target->namespace = (uint32_t)namespace;
	target->max_io_bytes = smaller(queue_limit(device, "max_hw_sectors_kb") * 1024, PIECE_MAX_BYTES);
	target->max_io_bytes = smaller(target->max_io_bytes, MAX_COMMAND_BLOCKS * block_bytes);
	/* The pages of a buffer need not be neighbors, and it may begin within one. */
	if (segments > 1)
		target->max_io_bytes = smaller(target->max_io_bytes, (segments - 1) * PAGE_BYTES);
	target->max_io_bytes -= target->max_io_bytes % (block_bytes > PAGE_BYTES ? block_bytes : PAGE_BYTES);
	target->write_zeroes_max_bytes = smaller(target->write_zeroes_max_bytes, MAX_COMMAND_BLOCKS * block_bytes);
	target->discard_max_bytes = smaller(target->discard_max_bytes, (int64_t)UINT32_MAX * block_bytes);
	target->write_support.verify_max_bytes = smaller(target->write_support.verify_max_bytes,
							 MAX_COMMAND_BLOCKS * block_bytes);
	return 0;
}

/* Refuses a file or drive that is not the claimed one. Returns 0 or an exit code. */
static int check_identity(const struct target_options *options, int fd)
{
	struct claimed identity;
	int err = identify(fd, &identity);

	if (err)
		return refuse_open(options->path, -err);
	if (is_same(&identity, options->claimed))
		return 0;
	report_error("run the same command again", "%s was replaced after it was checked", options->path);
	return EXIT_REFUSED;
}

/*
 * The caller waits for the end of this lock, because io_uring can keep the file open for some time after this process
 * has ended. On a file system without locks it does not wait.
 */
static void lock_until_closed(int fd)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };

	(void)fcntl(fd, F_OFD_SETLK, &lock);
}

/* Returns 0 or an exit code. */
static int open_claimed(struct target *target, const struct target_options *options)
{
	char path[32];
	int code = check_identity(options, options->claimed->fd);

	if (code)
		return code;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", options->claimed->fd);
	target->fd = open(path, (options->may_write ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC);
	if (target->fd < 0)
		return refuse_open(options->path, errno);
	lock_until_closed(target->fd);
	return check_identity(options, target->fd);
}

static int open_target(struct target *target, const struct target_options *options)
{
	struct stat st;
	int err, code;

	*target = (struct target){
		.path = options->path ? options->path : "the nil target",
		.fd = -1,
		.exclusive_fd = options->path ? options->claimed->exclusive_fd : -1,
		.command_fd = -1,
		.statistics_fd = -1,
		.write_zeroes_fd = -1,
		.write_support = options->write_support,
		.may_write = options->may_write,
		.realtime_priority = realtime_priority_allowed(),
		.size_bytes = options->nil_size_bytes,
		.logical_block_bytes = 512,
		.block_device = true,
		.fua = true,
		.write_cache = true,
		.discard_max_bytes = INT64_MAX,
		.write_zeroes_max_bytes = INT64_MAX,
	};
	if (!options->path)
		return 0;

	code = open_claimed(target, options);
	if (code)
		return code;
	if (fstat(target->fd, &st))
		return refuse_open(options->path, errno);
	target->block_device = S_ISBLK(st.st_mode);
	if (target->block_device) {
		err = read_block_device(target, st.st_rdev);
		if (err)
			return refuse_open(options->path, -err);
	} else {
		target->size_bytes = st.st_size;
		target->logical_block_bytes = direct_alignment(target->fd);
		target->max_io_bytes = 0;
	}
	for (int i = 0; target->write_support.hinted && i < HINT_COUNT; i++) {
		code = check_identity(options, target->write_support.hint_fds[i]);
		if (code)
			return code;
	}
	err = options->compares_fd ? compares_map(&target->compares, options->compares_fd) : 0;
	if (err) {
		report_error(NULL, "cannot use the data of compares for %s: %s", options->path, strerror(-err));
		return EXIT_FAILED;
	}
	if (options->polled && !(target->block_device && queue_limit(st.st_rdev, "io_poll"))) {
		report_error("boot with nvme.poll_queues=1, or omit --polled", "%s cannot be polled for completions",
			     options->path);
		return EXIT_FAILED;
	}
	return options->passthrough ? open_commands(target, options, st.st_rdev) : 0;
}

void target_close(struct target *target)
{
	int *fds[] = { &target->fd, &target->command_fd, &target->statistics_fd, &target->write_zeroes_fd };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	compares_unmap(&target->compares);
	for (int i = 0; target->write_support.hinted && i < HINT_COUNT; i++)
		close(target->write_support.hint_fds[i]);
	target->write_support.hinted = false;
}

int target_open(struct target *target, const struct target_options *options)
{
	int code = open_target(target, options);

	if (code)
		target_close(target);
	return code;
}

int64_t target_merges(const struct target *target)
{
	long long reads = 0, writes = 0, discards = 0;
	char text[512];

	read_attribute(target->statistics_fd, text, sizeof(text));
	/* Merges are the second of four fields for reads, writes and discards: Documentation/block/stat.rst. */
	if (sscanf(text, "%*s %lld %*s %*s %*s %lld %*s %*s %*s %*s %*s %*s %lld", &reads, &writes, &discards) < 2)
		reads = writes = 0;
	return reads + writes + discards;
}

bool target_lost_write_zeroes(const struct target *target)
{
	char text[32];

	return target->write_zeroes_fd >= 0 && target->write_zeroes_max_bytes &&
	       !strtoll(read_attribute(target->write_zeroes_fd, text, sizeof(text)), NULL, 10);
}

/* The most bytes of one request; 0: no limit. */
static int64_t request_limit(const struct target *target, enum trace_op op)
{
	int64_t data_bytes = target->max_io_bytes ? target->max_io_bytes : PIECE_MAX_BYTES;

	switch (op) {
	case OP_READ:
	case OP_WRITE:
	case OP_ZONE_APPEND:
	case OP_COMPARE:
		return data_bytes;
	case OP_DISCARD:
		return target->discard_max_bytes;
	case OP_WRITE_ZEROES:
		return target->write_zeroes_max_bytes ? target->write_zeroes_max_bytes : data_bytes;
	case OP_VERIFY:
		return target->write_support.verify_max_bytes;
	default:
		return 0;
	}
}

int64_t target_requests(const struct target *target, enum trace_op op, int64_t length_bytes)
{
	int64_t limit_bytes = request_limit(target, op);

	if (op == OP_READ || op_is_write(op) || op == OP_COMPARE)
		length_bytes = length_bytes < ROW_WINDOW_BYTES ? length_bytes : ROW_WINDOW_BYTES;
	return limit_bytes && length_bytes > limit_bytes ? (length_bytes - 1) / limit_bytes + 1 : 1;
}

int64_t target_piece_bytes(const struct target *target)
{
	int64_t request_bytes = target->max_io_bytes;

	if (target_takes_commands(target))
		return request_bytes;
	if (!request_bytes || request_bytes > PIECE_MAX_BYTES)
		return PIECE_MAX_BYTES;
	return PIECE_MAX_BYTES / request_bytes * request_bytes;
}

/* How the block layer executes flags that a drive may not support: block/blk-flush.c. */
static enum fidelity write_fidelity(const struct target *target, int32_t flags)
{
	bool fua = flags & FLAG_FUA, preflush = flags & FLAG_PREFLUSH;

	if (!target->block_device) /* the file system decides about flushes */
		return fua ? ALTERED_FUA : preflush ? ALTERED_PREFLUSH : AS_PLANNED;
	if (!target->write_cache)
		return fua ? ALTERED_FUA_WITHOUT_CACHE : preflush ? ALTERED_PREFLUSH_WITHOUT_CACHE : AS_PLANNED;
	return fua && !target->fua ? ALTERED_FUA_BY_FLUSH : AS_PLANNED;
}

static enum fidelity command_fidelity(const struct target *target, enum trace_op op, int32_t flags)
{
	enum fidelity as_write;

	if (op_is_zone_management(op))
		return target->zone_bytes ? AS_PLANNED : DROPPED;
	switch (op) {
	case OP_WRITE:
		return write_fidelity(target, flags);
	case OP_ZONE_APPEND:
		/* The kernel appends for file systems only. */
		as_write = write_fidelity(target, flags);
		return as_write == AS_PLANNED ? ALTERED_ZONE_APPEND : as_write;
	case OP_FLUSH:
		if (!target->block_device)
			return ALTERED_FLUSH;
		return target->write_cache ? AS_PLANNED : ALTERED_FLUSH_WITHOUT_CACHE;
	case OP_DISCARD:
		if (!target->block_device)
			return ALTERED_DISCARD;
		return target->discard_max_bytes ? AS_PLANNED : DROPPED;
	case OP_WRITE_ZEROES:
		/* Without the command the kernel writes zeros. */
		return target->block_device && target->write_zeroes_max_bytes ? AS_PLANNED : ALTERED_WRITE_ZEROES;
	case OP_VERIFY:
	case OP_COMPARE:
		/* Only the nil target and simulated drives, which need no interface for it. */
		return target->fd < 0 ? AS_PLANNED : DROPPED;
	default:
		return AS_PLANNED;
	}
}

/* A command has a bit for FUA, and the drive gets each flush; no other flag of a row. */
static enum fidelity passthrough_fidelity(const struct target *target, enum trace_op op, int32_t flags)
{
	if (op == OP_ZONE_APPEND)
		return ALTERED_ZONE_APPEND;
	if (op_is_zone_management(op) || (op == OP_COMPARE && !target->compares.memory) ||
	    (op == OP_DISCARD && !target->discard_max_bytes) ||
	    (op == OP_WRITE_ZEROES && !target->write_zeroes_max_bytes) ||
	    (op == OP_VERIFY && !target->write_support.verify_max_bytes))
		return DROPPED;
	if ((flags & FLAG_FUA) && (op == OP_FLUSH || op == OP_DISCARD))
		return ALTERED_FUA;
	if ((flags & FLAG_PREFLUSH) && op != OP_WRITE && op != OP_FLUSH)
		return ALTERED_PREFLUSH;
	return flags & (FLAG_PRIORITY_REALTIME | FLAG_PRIORITY_BEST_EFFORT | FLAG_PRIORITY_IDLE) ? ALTERED_PRIORITY :
												   AS_PLANNED;
}

/* The rules of the kernel: generic_atomic_write_valid(). */
static bool may_be_atomic(const struct write_support *support, int64_t offset_bytes, int64_t length_bytes)
{
	return length_bytes >= support->atomic_min_bytes && length_bytes <= support->atomic_max_bytes &&
	       length_bytes <= PIECE_MAX_BYTES && !((length_bytes - 1) & (length_bytes | offset_bytes));
}

int32_t target_write_flags(const struct target *target, enum trace_op op, int32_t flags, int64_t offset_bytes,
			   int64_t length_bytes)
{
	const struct write_support *support = &target->write_support;
	bool plain = !op_is_write(op) || !target->block_device || target_takes_commands(target);

	/* The nil target and simulated drives have no writes that differ. */
	if (target->fd < 0)
		return flags;
	if (plain || !support->hinted)
		flags &= ~FLAG_HINTS;
	if (plain || !support->atomic_max_bytes || !may_be_atomic(support, offset_bytes, length_bytes))
		flags &= ~FLAG_ATOMIC;
	return flags;
}

enum fidelity target_fidelity(const struct target *target, enum trace_op op, int32_t flags)
{
	bool transfer = op == OP_READ || op_is_write(op);
	enum fidelity fidelity = target_takes_commands(target) ? passthrough_fidelity(target, op, flags) :
							   command_fidelity(target, op, flags);

	if (target_takes_commands(target) || fidelity != AS_PLANNED)
		return fidelity;
	/* The kernel has no interface for these flags with other ops. */
	if (!op_is_write(op) && op != OP_FLUSH && (flags & (FLAG_FUA | FLAG_PREFLUSH)))
		return flags & FLAG_FUA ? ALTERED_FUA : ALTERED_PREFLUSH;
	/* The nil target and simulated drives have no priorities. */
	if (target->fd < 0)
		return AS_PLANNED;
	if (!transfer && (flags & (FLAG_PRIORITY_REALTIME | FLAG_PRIORITY_IDLE)))
		return ALTERED_PRIORITY;
	if ((flags & FLAG_PRIORITY_REALTIME) && !target->realtime_priority)
		return ALTERED_PRIORITY;
	return AS_PLANNED;
}
