/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "programs.h"
#include "cleanup.h"
#include "error.h"
#include "pid_namespace.h"

#include "raw_tp.skel.h"
#include "tp_btf.skel.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOST_INTERVAL_GAP_NS 100000000ull
#define BIOS_IN_FLIGHT 65536 /* of all bio-based drives together; more are counted as lost */
#define EARLIER_BIOS 16384 /* that wait for a limit of their cgroup or in a volume, of all drives together */
#define FILE_IDS 65536

static int print_message(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	return vfprintf(stderr, format, args);
}

void programs_set_verbose(bool verbose)
{
	libbpf_set_print(verbose ? print_message : NULL);
}

struct symbol {
	const char *name;
	__u64 *address;
};

/* Addresses of kernel functions; 0 if the name is unknown or hidden from this process. Of a hundred thousand lines it
 * reads those up to the last of these functions; the names of modules come behind the kernel's own.
 */
static void find_symbols(const struct symbol *symbols, size_t count)
{
	FILE *file CLEANUP_FCLOSE = fopen("/proc/kallsyms", "re");
	size_t left = count;
	char line[512], buffer[16384];

	if (file)
		setvbuf(file, buffer, _IOFBF, sizeof(buffer)); /* procfs asks for blocks of 1 KiB */
	/* ADDRESS, a letter, NAME, and for a module a tab and its name. */
	while (left && file && fgets(line, sizeof(line), file)) {
		const char *name = strchr(line, ' ');
		size_t length;

		if (!name || strlen(name) < 4)
			continue;
		name += 3;
		length = strcspn(name, "\t\n");
		for (size_t i = 0; i < count; i++) {
			if (*symbols[i].address || strncmp(symbols[i].name, name, length) || symbols[i].name[length])
				continue;
			*symbols[i].address = strtoull(line, NULL, 16);
			left--;
		}
	}
}

/* Differences between kernels. */
struct features {
	bool io_start; /* since 6.5 */
	bool request_is_second; /* before 5.11: (queue, request) */
	bool bio_is_second;
	bool dirty_folio; /* since 5.18, a page before */
	bool page_uses; /* since 6.12: tracepoints of accesses to the page cache */
	bool faults; /* a program can be attached to their end */
	uint32_t pinned_pages; /* the flag of bios with pages of a program (since 6.5); 0: unknown */
	uint32_t scsi_command_at; /* the offset of a command in the structure of the SCSI driver; 0: unknown */
	const char *limiter; /* the function that applies the limits of cgroups to a bio; NULL: not attachable */
};

/* The number of arguments of a tracepoint, -1 if this kernel does not have it. */
static int tracepoint_arguments(const struct btf *btf, const char *name)
{
	char type_name[64];
	const struct btf_type *type;
	int id;

	snprintf(type_name, sizeof(type_name), "btf_trace_%s", name);
	id = btf__find_by_name_kind(btf, type_name, BTF_KIND_TYPEDEF);
	if (id < 0)
		return -1;
	type = btf__type_by_id(btf, btf__type_by_id(btf, id)->type);
	if (!btf_is_ptr(type))
		return -1;
	type = btf__type_by_id(btf, type->type);
	return btf_is_func_proto(type) ? btf_vlen(type) - 1 : -1;
}

/* Whether the kernel lets a program be attached to begin or end of this function, and it takes one argument. */
static bool is_attachable(const struct btf *btf, const char *name, enum bpf_attach_type where)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_FUNC);
	LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = where, .attach_btf_id = (__u32)id);
	int fd CLEANUP_CLOSE = -1, link CLEANUP_CLOSE = -1;

	if (id < 0 || btf_vlen(btf__type_by_id(btf, btf__type_by_id(btf, (__u32)id)->type)) != 1)
		return false;
	fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, NULL, "GPL", insns, 2, &options);
	/* Some kernels load programs for functions, and attach none. */
	link = fd < 0 ? fd : bpf_raw_tracepoint_open(NULL, fd);
	return link >= 0;
}

/* The second is its name before 5.18. */
static const char *find_limiter(const struct btf *btf)
{
	static const char *const names[] = { "__blk_throtl_bio", "blk_throtl_bio" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_attachable(btf, names[i], BPF_TRACE_FENTRY))
			return names[i];
	return NULL;
}

/* The value of a name of an enumeration that has none itself, -1 if there is none. */
static int value_of(const struct btf *btf, const char *name)
{
	__u32 count = btf__type_cnt(btf);

	for (__u32 id = 1; id < count; id++) {
		const struct btf_type *type = btf__type_by_id(btf, id);

		if (!btf_is_enum(type) || type->name_off)
			continue;
		for (__u32 i = 0; i < btf_vlen(type); i++)
			if (!strcmp(btf__name_by_offset(btf, btf_enum(type)[i].name_off), name))
				return btf_enum(type)[i].val;
	}
	return -1;
}

/* The offset of an array in a structure; 0 if there is none. */
static uint32_t offset_in(const struct btf *btf, const char *structure, const char *array)
{
	int id = btf__find_by_name_kind(btf, structure, BTF_KIND_STRUCT);
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, (__u32)id);

	for (__u32 i = 0; type && i < btf_vlen(type); i++) {
		const struct btf_member *member = btf_members(type) + i;

		if (!strcmp(btf__name_by_offset(btf, member->name_off), array) &&
		    btf_is_array(btf__type_by_id(btf, member->type)))
			return btf_member_bit_offset(type, i) / 8;
	}
	return 0;
}

/* Since Linux 5.19; before, the structure has the address of a command. */
static uint32_t find_scsi_command(struct btf *kernel)
{
	uint32_t at = offset_in(kernel, "scsi_cmnd", "cmnd");
	struct btf *module = at ? NULL : btf__parse_split("/sys/kernel/btf/scsi_mod", kernel);

	if (module)
		at = offset_in(module, "scsi_cmnd", "cmnd");
	btf__free(module);
	return at;
}

static int probe_features(struct features *features)
{
	struct btf *btf = btf__load_vmlinux_btf();
	int bit;

	if (!btf && report_shortage("cannot read the types of the kernel", errno))
		return -1;
	if (!btf)
		return report_error("use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of Debian, Ubuntu, Fedora and SUSE are",
				    "the kernel has no type information (/sys/kernel/btf/vmlinux: %s)", strerror(errno));
	features->io_start = tracepoint_arguments(btf, "block_io_start") >= 0;
	features->request_is_second = tracepoint_arguments(btf, "block_rq_issue") == 2;
	features->bio_is_second = tracepoint_arguments(btf, "block_bio_queue") == 2;
	features->dirty_folio = tracepoint_arguments(btf, "writeback_dirty_folio") >= 0;
	features->page_uses = tracepoint_arguments(btf, "mm_filemap_get_pages") == 3 &&
			      tracepoint_arguments(btf, "mm_filemap_map_pages") == 3;
	features->faults = features->page_uses && is_attachable(btf, "filemap_fault", BPF_TRACE_FEXIT);
	bit = value_of(btf, "BIO_PAGE_PINNED");
	features->pinned_pages = bit >= 0 ? 1u << bit : 0;
	features->scsi_command_at = find_scsi_command(btf);
	features->limiter = find_limiter(btf);
	btf__free(btf);
	return 0;
}

static struct bpf_object *open_kind(const char *kind)
{
	/* With a path, libbpf does not search the modules for unknown types, which takes CAP_SYS_ADMIN. */
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "blkreel", .btf_custom_path = "/sys/kernel/btf/vmlinux");
	size_t size = 0;
	const void *bytes = strcmp(kind, "tp_btf") ? raw_tp__elf_bytes(&size) : tp_btf__elf_bytes(&size);

	return bpf_object__open_mem(bytes, size, &options);
}

/* Only the programs that this capture needs: each costs time at each of its events. */
static int choose_programs(struct bpf_object *object, const struct programs_options *options,
			   const struct features *features)
{
	bool requests = !options->drives->device_count, bios = false;
	bool by_process = options->own && !options->own_cgroup;
	bool uses = options->uses && features->page_uses;
	struct bpf_program *program;

	for (uint32_t i = 0; i < options->drives->device_count; i++) {
		bios |= options->drives->devices[i].bio_based;
		requests |= !options->drives->devices[i].bio_based;
	}
	bpf_object__for_each_program(program, object) {
		const char *name = bpf_program__name(program);
		const struct {
			const char *name;
			bool wanted;
		} all[] = {
			{ "io_start", requests && features->io_start },
			{ "rq_insert", requests && !features->io_start },
			{ "rq_issue", requests },
			{ "rq_requeue", requests },
			{ "rq_merge", requests },
			{ "rq_complete", requests },
			{ "waking", true },
			{ "task_switch", true },
			{ "wakeup_new", true },
			{ "queue_work", true },
			{ "execute_work", true },
			{ "bio_queue", bios || options->volumes },
			{ "bio_complete", bios },
			{ "bio_remap", options->volumes },
			{ "rq_remap", options->volumes },
			{ "bio_split", bios || options->volumes },
			{ "dirty_folio", options->files && features->dirty_folio },
			{ "dirty_page", options->files && !features->dirty_folio },
			{ "use_read", uses },
			{ "use_mapped", uses },
			{ "use_faulted", uses && features->faults },
			{ "limit", features->limiter != NULL },
			{ "process_fork", by_process },
			{ "process_exit", by_process },
			{ "mark_children", by_process },
			{ "list_processes", by_process && !pid_namespace_is_initial() },
			{ "synthetic", options->synthetic },
		};

		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			if (!strcmp(all[i].name, name) && bpf_program__set_autoload(program, all[i].wanted))
				return -EINVAL;
	}
	return 0;
}

static int set_size(struct bpf_object *object, const char *name, uint32_t entries)
{
	return bpf_map__set_max_entries(bpf_object__find_map_by_name(object, name), entries ? entries : 1);
}

/* The number of a block driver; 0: not loaded. */
static uint32_t find_major(const char *driver)
{
	FILE *file CLEANUP_FCLOSE = fopen("/proc/devices", "re");
	char line[128], name[64];
	bool is_block = false;
	unsigned int number;

	while (file && fgets(line, sizeof(line), file)) {
		is_block |= !strncmp(line, "Block", 5);
		if (is_block && sscanf(line, "%u %63s", &number, name) == 2 && !strcmp(name, driver))
			return number;
	}
	return 0;
}

static int configure(struct programs *programs, const struct programs_options *options,
		     const struct features *features)
{
	struct bpf_object *object = programs->object;
	struct bpf_map *config_map = bpf_object__find_map_by_name(object, ".rodata.config");
	struct bpf_program *limit = bpf_object__find_program_by_name(object, "limit");
	struct capture_config config = {
		.device_count = options->drives->device_count,
		.has_io_start = features->io_start,
		.request_is_second = features->request_is_second,
		.bio_is_second = features->bio_is_second,
		.files = options->files,
		.own = options->own,
		.own_by_cgroup = options->own_cgroup != NULL,
		.own_only = options->own_only,
		.uses = options->uses && features->page_uses,
		.sees_faults = options->uses && features->faults && bpf_object__find_program_by_name(object, "use_faulted"),
		.volumes = options->volumes,
		.pinned_pages = features->pinned_pages,
		.dm_major = options->volumes ? find_major("device-mapper") : 0,
		.scsi_command_at = features->scsi_command_at,
		.wakeup_bytes = options->ring_bytes / 4,
		.interval_gap_ns = LOST_INTERVAL_GAP_NS,
	};
	bool bios = false;
	int err;

	programs->sees_uses = config.uses;
	programs->sees_limiter = limit && features->limiter;
	config.sees_limiter = programs->sees_limiter;
	find_symbols((struct symbol[]){
		{ "submit_bio_wait_endio", &config.end_of_waited_bio },
		{ "iomap_dio_bio_end_io", &config.end_of_direct_io },
		{ "bio_chain_endio", &config.end_of_chained_bio },
	}, 3);
	config.path_count = options->drives->path_count;
	memcpy(config.devices, options->drives->devices, sizeof(config.devices));
	memcpy(config.paths, options->drives->paths, sizeof(config.paths));
	for (uint32_t i = 0; i < options->drives->device_count; i++)
		bios |= options->drives->devices[i].bio_based;
	err = bpf_map__set_initial_value(config_map, &config, sizeof(config));
	if (!err)
		err = set_size(object, "ring", options->ring_bytes);
	if (!err)
		err = set_size(object, "slots", options->slot_count);
	if (!err)
		err = set_size(object, "bios", bios ? BIOS_IN_FLIGHT : 1);
	if (!err)
		err = set_size(object, "page_notes", config.uses ? PAGE_NOTES : 1);
	if (!err)
		err = set_size(object, "issuers", programs->sees_limiter || config.volumes ? EARLIER_BIOS : 1);
	if (!err)
		err = set_size(object, "file_ids", config.files ? FILE_IDS : 1);
	if (!err)
		err = set_size(object, "entered", config.volumes ? EARLIER_BIOS : 1);
	if (!err && programs->sees_limiter)
		err = bpf_program__set_attach_target(limit, 0, features->limiter);
	if (!err)
		err = choose_programs(object, options, features);
	return err;
}

/* Whole pages, at least one: a map needs an entry even without slots. */
static size_t mapped_bytes(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes ? bytes + page - 1 : page) / page * page;
}

static void *map_memory(struct bpf_object *object, const char *name, size_t bytes, int protection)
{
	return mmap(NULL, mapped_bytes(bytes), protection, MAP_SHARED, bpf_object__find_map_fd_by_name(object, name), 0);
}

static void unmap(const volatile void *memory, size_t bytes)
{
	if (memory != MAP_FAILED)
		munmap((void *)memory, mapped_bytes(bytes));
}

int programs_link(struct programs *programs)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, programs->object) {
		struct bpf_link *link;

		if (!bpf_program__autoload(program) || bpf_program__type(program) == BPF_PROG_TYPE_SYSCALL ||
		    bpf_program__expected_attach_type(program) == BPF_TRACE_ITER)
			continue;
		link = bpf_program__attach(program);
		if (!link)
			return -errno;
		programs->links[programs->link_count++] = link;
	}
	return 0;
}

/* Python has checked that the directory is a control group. */
static int watch_cgroup(struct bpf_object *object, const char *directory)
{
	int fd CLEANUP_CLOSE = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint32_t zero = 0;

	if (fd < 0)
		return -errno;
	return bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "own_cgroup"), &zero, &fd, BPF_ANY);
}

static int load(struct programs *programs, const struct programs_options *options, const struct features *features)
{
	struct bpf_object *object = programs->object;
	int err = configure(programs, options, features);

	if (!err)
		err = bpf_object__load(object);
	if (err)
		return err;
	programs->ring_fd = bpf_object__find_map_fd_by_name(object, "ring");
	programs->ledger_fd = bpf_object__find_map_fd_by_name(object, "ledger");
	programs->bios_fd = bpf_object__find_map_fd_by_name(object, "bios");
	programs->own_pids_fd = bpf_object__find_map_fd_by_name(object, "own_pids");
	programs->control = map_memory(object, ".data.control", sizeof(struct capture_control), PROT_READ | PROT_WRITE);
	programs->slots = map_memory(object, "slots", options->slot_count * sizeof(struct slot), PROT_READ);
	if (programs->control == MAP_FAILED || programs->slots == MAP_FAILED)
		return -errno;
	err = options->own_cgroup ? watch_cgroup(object, options->own_cgroup) : 0;
	return err ? err : programs_link(programs);
}

static int try_kind(struct programs *programs, const struct programs_options *options,
		    const struct features *features, const char *kind)
{
	int err;

	*programs = (struct programs){
		.kind = kind,
		.has_io_start = features->io_start,
		.slot_count = options->slot_count,
		.object = open_kind(kind),
		.control = MAP_FAILED,
		.slots = MAP_FAILED,
	};
	if (!programs->object)
		return -errno;
	err = load(programs, options, features);
	if (err)
		programs_deinit(programs);
	return err;
}

int programs_attach(struct programs *programs, const struct programs_options *options)
{
	static const char *const kinds[] = { "tp_btf", "raw_tp" };
	struct features features;
	int err = -EINVAL;

	if (probe_features(&features))
		return -1;
	if (options->without_io_start)
		features.io_start = false;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (options->kind && strcmp(options->kind, kinds[i]))
			continue;
		err = try_kind(programs, options, &features, kinds[i]);
		if (!err)
			return 0;
	}
	if (err == -EPERM || err == -EACCES)
		/* The command replaces the dots by its arguments (common/command_line.py). */
		return report_error(geteuid() ? "run as root: sudo blkreel ..." :
				    "run it outside the container: a seccomp profile may refuse bpf; or record without BPF: "
				    "blkreel capture --source ftrace", "no permission to load BPF programs");
	return report_shortage("cannot load the BPF programs", -err) ? -1 :
	       report_error("record without BPF: blkreel capture --source ftrace",
			    "the kernel refuses the BPF programs (%s)", strerror(-err));
}

void programs_detach(struct programs *programs)
{
	for (size_t i = 0; i < programs->link_count; i++)
		bpf_link__destroy(programs->links[i]);
	programs->link_count = 0;
}

void programs_deinit(struct programs *programs)
{
	if (!programs->object)
		return; /* not initialized */
	programs_detach(programs);
	unmap(programs->control, sizeof(*programs->control));
	unmap(programs->slots, programs->slot_count * sizeof(*programs->slots));
	bpf_object__close(programs->object);
	programs->object = NULL;
}

int programs_own_pid(const struct programs *programs, int32_t pid)
{
	uint8_t one = 1;

	return bpf_map_update_elem(programs->own_pids_fd, &pid, &one, BPF_ANY);
}

uint64_t programs_recursion_misses(const struct programs *programs)
{
	struct bpf_program *program;
	uint64_t misses = 0;

	bpf_object__for_each_program(program, programs->object) {
		struct bpf_prog_info info = { 0 };
		__u32 length = sizeof(info);

		if (bpf_program__fd(program) >= 0 && !bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &length))
			misses += info.recursion_misses;
	}
	return misses;
}
