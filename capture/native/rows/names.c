/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "names.h"
#include "cleanup.h"
#include "clock.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_QUEUED_THREADS 16384
#define MAX_QUEUED_FILES 4096
#define RECENT_THREADS 64
#define ENTRIES_PER_NOTE 64
#define MAP_ENTRIES (1u << 17)
#define MAX_PATHS (MAP_ENTRIES / 2)
#define MAX_UNWANTED_PATHS (MAX_PATHS / 2)
#define MAX_UNWANTED_BYTES (16u << 20)
#define MAX_JOINED_BYTES (MAX_PATH_BYTES + MAX_NAME_BYTES + 1) /* a slash in place of the zero behind each name */

struct name_queue {
	size_t thread_count;
	size_t file_count;
	struct thread_record threads[MAX_QUEUED_THREADS];
	struct file_record files[MAX_QUEUED_FILES];
};

struct path_entry {
	uint64_t number;
	char *path; /* NULL: unknown */
	bool used;
};

int path_map_init(struct path_map *map)
{
	*map = (struct path_map){ .entries = calloc(MAP_ENTRIES, sizeof(*map->entries)) };
	return map->entries ? 0 : -ENOMEM;
}

static void path_map_clear(struct path_map *map)
{
	for (size_t i = 0; i < MAP_ENTRIES; i++)
		free(map->entries[i].path);
	memset(map->entries, 0, MAP_ENTRIES * sizeof(*map->entries));
	map->count = map->bytes = 0;
}

void path_map_deinit(struct path_map *map)
{
	if (map->entries)
		path_map_clear(map);
	free(map->entries);
	map->entries = NULL;
}

static struct path_entry *entry_of(const struct path_map *map, uint64_t number)
{
	size_t at = (number * 0x9e3779b97f4a7c15u) >> 47; /* the upper 17 bits: MAP_ENTRIES */

	while (map->entries[at].used && map->entries[at].number != number)
		at = (at + 1) % MAP_ENTRIES;
	return &map->entries[at];
}

bool path_map_want(struct path_map *map, uint64_t number)
{
	struct path_entry *entry = entry_of(map, number);

	if (entry->used)
		return false;
	*entry = (struct path_entry){ .number = number, .used = true };
	map->count++;
	return true;
}

const char *path_map_get(const struct path_map *map, uint64_t number)
{
	return entry_of(map, number)->path;
}

/* The first path counts. A path that no row needs yet is stored while there is room, and saves a later walk. */
static int path_map_set(struct path_map *map, uint64_t number, const char *path)
{
	struct path_entry *entry = entry_of(map, number);

	if (entry->path || (!entry->used && (map->count >= MAX_UNWANTED_PATHS || map->bytes >= MAX_UNWANTED_BYTES)))
		return 0;
	path_map_want(map, number);
	entry->path = strdup(path);
	if (!entry->path)
		return -ENOMEM;
	map->bytes += strlen(path) + 1;
	return 0;
}

/* The mount point of the unified hierarchy, to be freed; NULL if it is not mounted. Returns 0 or -ENOMEM. */
static int cgroup_root(char **root)
{
	FILE *file CLEANUP_FCLOSE = fopen("/proc/self/mountinfo", "re");
	char *line CLEANUP_FREE = NULL;
	const char *type;
	struct mount mount;
	size_t size = 0;

	*root = NULL;
	while (file && getline(&line, &size, file) > 0)
		if (mount_parse(line, &mount, &type) && !strncmp(type, "cgroup2 ", 8)) {
			*root = strdup(mount.point);
			return *root ? 0 : -ENOMEM;
		}
	return 0;
}

/* path has room for PATH_MAX bytes and holds `length`. The kind and inode number of readdir() save a stat() per file. */
static int read_below(struct path_map *cgroups, char *path, size_t length, size_t root_length)
{
	DIR *directory CLEANUP_CLOSEDIR = opendir(path);
	struct dirent *entry;
	int err = 0;

	while (directory && !err && (entry = readdir(directory))) {
		size_t name_length = strlen(entry->d_name);

		if (entry->d_type != DT_DIR || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    length + 1 + name_length >= PATH_MAX)
			continue;
		path[length] = '/';
		memcpy(path + length + 1, entry->d_name, name_length + 1);
		err = path_map_set(cgroups, entry->d_ino, path + root_length);
		if (!err)
			err = read_below(cgroups, path, length + 1 + name_length, root_length);
	}
	path[length] = '\0';
	return err;
}

int cgroups_read(struct path_map *cgroups, const char *root)
{
	size_t length = strlen(root);
	char path[PATH_MAX];
	struct stat stat_of_root;

	if (length >= sizeof(path) || stat(root, &stat_of_root))
		return 0;
	memcpy(path, root, length + 1);
	if (path_map_set(cgroups, stat_of_root.st_ino, "/"))
		return -ENOMEM;
	return read_below(cgroups, path, length, length);
}

/* Cleared before it could overflow: a number that is still in use is looked up again. */
static void make_room(struct path_map *map, size_t wanted)
{
	if (map->count + wanted > MAX_PATHS)
		path_map_clear(map);
}

static int resolve_cgroups(struct names *names)
{
	const struct name_queue *queue = names->resolving;
	bool walk = false;
	char *root CLEANUP_FREE = NULL;

	if (names->without_names)
		return 0;
	make_room(&names->cgroups, queue->thread_count);
	for (size_t i = 0; i < queue->thread_count; i++)
		walk |= queue->threads[i].cgroup && path_map_want(&names->cgroups, queue->threads[i].cgroup);
	if (walk && cgroup_root(&root))
		return -ENOMEM;
	return root ? cgroups_read(&names->cgroups, root) : 0;
}

/* Whether a file system was mounted or unmounted since the last call: proc_pid_mounts(5). True at the first call. */
static bool mounts_changed(struct names *names)
{
	struct pollfd changes;

	if (!names->mountinfo) {
		names->mountinfo = fopen("/proc/self/mountinfo", "re");
		return names->mountinfo;
	}
	changes = (struct pollfd){ .fd = fileno(names->mountinfo), .events = POLLPRI };
	return poll(&changes, 1, 0) > 0;
}

static int resolve_mounts(struct names *names)
{
	/* A device that is unmounted, attached anew and mounted again has the same number. */
	if (!names->resolving->file_count || !mounts_changed(names))
		return 0;
	rewind(names->mountinfo);
	return mounts_read(&names->mounts, names->mountinfo);
}

static void print_thread(const struct names *names, FILE *file, size_t index)
{
	const struct thread_record *thread = &names->resolving->threads[index];
	const char *cgroup = path_map_get(&names->cgroups, thread->cgroup);

	if (names->without_names) {
		fprintf(file, "[%d, %d, \"\", \"\", \"\"]", thread->tid, thread->pid);
		return;
	}
	fprintf(file, "[%d, %d, ", thread->tid, thread->pid);
	print_json_string(file, thread->comm, sizeof(thread->comm));
	fputs(", ", file);
	print_json_string(file, thread->process, sizeof(thread->process));
	fputs(", ", file);
	print_json_string(file, cgroup ? cgroup : "", PATH_MAX);
	fputc(']', file);
}

/* The path from the root of the file system. The record has the names from the file up to it. */
static void join_path(const struct file_record *record, char path[MAX_JOINED_BYTES])
{
	const char *parts[MAX_PATH_PARTS], *part = record->names, *end = record->names + sizeof(record->names);
	int count = 0;

	while (count < record->parts && count < MAX_PATH_PARTS && part < end) {
		parts[count++] = part;
		part += strnlen(part, (size_t)(end - part)) + 1;
	}
	*path = '\0';
	while (count-- > 0) {
		size_t length = strnlen(parts[count], (size_t)(end - parts[count]));

		*path++ = '/';
		memcpy(path, parts[count], length);
		path += length;
		*path = '\0';
	}
}

static void print_file(const struct names *names, FILE *file, size_t index)
{
	const struct file_record *record = &names->resolving->files[index];
	char joined[MAX_JOINED_BYTES], *path = joined;
	const struct mount *mount;

	join_path(record, joined);
	mount = record->is_cut ? NULL : mounts_find(&names->mounts, record->filesystem, path);
	fprintf(file, "{\"filesystem\": \"%u:%u\", \"inode\": %" PRIu64 ", \"path\": \"", record->filesystem >> 20,
		record->filesystem & 0xfffff, (uint64_t)record->inode);
	if (mount) {
		print_json_part(file, mount->point, PATH_MAX);
		path += strlen(mount->root);
	} else if (record->is_cut) {
		print_json_part(file, "…", strlen("…"));
	} else {
		fputs("(other namespace) ", file);
	}
	print_json_part(file, path, sizeof(joined));
	fputs("\"}", file);
}

static void post_notes(struct names *names, const char *kind, size_t count,
		       void (*print)(const struct names *names, FILE *file, size_t index))
{
	for (size_t begin = 0; begin < count; begin += ENTRIES_PER_NOTE) {
		TEXT(text) = { 0 };

		if (text_init(&text)) {
			outbox_post_json(names->outbox, BLOCK_NOTE, NULL);
			return;
		}
		fprintf(text.file, "{\"note\": \"%s\", \"%s\": [", kind, kind);
		for (size_t i = begin; i < count && i < begin + ENTRIES_PER_NOTE; i++) {
			fputs(i > begin ? ", " : "", text.file);
			print(names, text.file, i);
		}
		fputs("]}", text.file);
		outbox_post_json(names->outbox, BLOCK_NOTE, text_finish(&text));
	}
}

static void resolve(struct names *names)
{
	struct name_queue *queue = names->resolving;

	if (resolve_cgroups(names) || resolve_mounts(names))
		outbox_post_json(names->outbox, BLOCK_NOTE, NULL);
	post_notes(names, "threads", queue->thread_count, print_thread);
	post_notes(names, "files", queue->file_count, print_file);
	queue->thread_count = queue->file_count = 0;
}

static bool has_records(const struct names *names)
{
	return names->queued->thread_count || names->queued->file_count;
}

static void *resolve_queue(void *argument)
{
	struct names *names = argument;

	pthread_mutex_lock(&names->lock);
	while (!names->closed || has_records(names)) {
		struct name_queue *queue = names->queued;

		if (!has_records(names) || !(names->wake || names->closed)) {
			pthread_cond_wait(&names->wanted, &names->lock);
			continue;
		}
		names->queued = names->resolving;
		names->resolving = queue;
		names->wake = false;
		names->queues_taken++;
		pthread_cond_broadcast(&names->taken);
		pthread_mutex_unlock(&names->lock);
		resolve(names);
		pthread_mutex_lock(&names->lock);
		names->queues_posted++;
		pthread_cond_broadcast(&names->taken);
	}
	pthread_mutex_unlock(&names->lock);
	return NULL;
}

static int start(struct names *names)
{
	int err;

	if (!names->queued || !names->resolving || path_map_init(&names->cgroups))
		return -ENOMEM;
	err = pthread_create(&names->thread, NULL, resolve_queue, names);
	names->running = !err;
	if (!err)
		pthread_setname_np(names->thread, "names");
	return -err;
}

int names_init(struct names *names, struct outbox *outbox, bool without_names)
{
	int err;

	*names = (struct names){
		.outbox = outbox,
		.without_names = without_names,
		.queued = calloc(1, sizeof(*names->queued)),
		.resolving = calloc(1, sizeof(*names->resolving)),
	};
	pthread_mutex_init(&names->lock, NULL);
	pthread_cond_init(&names->wanted, NULL);
	pthread_cond_init(&names->taken, NULL);
	err = start(names);
	if (err)
		names_deinit(names);
	return err;
}

void names_deinit(struct names *names)
{
	if (!names->outbox)
		return; /* not initialized */
	names_finish(names);
	if (names->mountinfo)
		fclose(names->mountinfo);
	mounts_deinit(&names->mounts);
	path_map_deinit(&names->cgroups);
	pthread_cond_destroy(&names->taken);
	pthread_cond_destroy(&names->wanted);
	pthread_mutex_destroy(&names->lock);
	free(names->resolving);
	free(names->queued);
	names->outbox = NULL;
}

/* The queues swap while this waits. Called with the lock held. */
static void wait_for_room(struct names *names)
{
	while (names->queued->thread_count == MAX_QUEUED_THREADS || names->queued->file_count == MAX_QUEUED_FILES) {
		names->wake = true;
		pthread_cond_signal(&names->wanted);
		pthread_cond_wait(&names->taken, &names->lock);
	}
}

/* Two threads that share an entry of the kernel side's table are reported at every I/O. */
static bool is_recent(const struct name_queue *queue, const struct thread_record *record)
{
	size_t begin = queue->thread_count > RECENT_THREADS ? queue->thread_count - RECENT_THREADS : 0;

	for (size_t i = queue->thread_count; i > begin; i--)
		if (!memcmp(&queue->threads[i - 1], record, sizeof(*record)))
			return true;
	return false;
}

void names_add_thread(struct names *names, const struct thread_record *record)
{
	pthread_mutex_lock(&names->lock);
	if (!is_recent(names->queued, record)) {
		wait_for_room(names);
		names->queued->threads[names->queued->thread_count++] = *record;
	}
	pthread_mutex_unlock(&names->lock);
}

void names_add_file(struct names *names, const struct file_record *record)
{
	pthread_mutex_lock(&names->lock);
	wait_for_room(names);
	names->queued->files[names->queued->file_count++] = *record;
	pthread_mutex_unlock(&names->lock);
}

void names_wake(struct names *names)
{
	pthread_mutex_lock(&names->lock);
	if (has_records(names)) {
		names->wake = true;
		pthread_cond_signal(&names->wanted);
	}
	pthread_mutex_unlock(&names->lock);
}

void names_settle(struct names *names, unsigned int timeout_ms)
{
	uint64_t until_ns = clock_ns(CLOCK_REALTIME) + timeout_ms * 1000000ull, queues;
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / 1000000000u),
		.tv_nsec = (long)(until_ns % 1000000000u),
	};

	if (!names->running)
		return;
	pthread_mutex_lock(&names->lock);
	queues = names->queues_taken + has_records(names);
	if (has_records(names)) {
		names->wake = true;
		pthread_cond_signal(&names->wanted);
	}
	while (names->queues_posted < queues)
		if (pthread_cond_timedwait(&names->taken, &names->lock, &until))
			break;
	pthread_mutex_unlock(&names->lock);
}

void names_finish(struct names *names)
{
	if (!names->running)
		return;
	pthread_mutex_lock(&names->lock);
	names->closed = true;
	pthread_cond_signal(&names->wanted);
	pthread_mutex_unlock(&names->lock);
	pthread_join(names->thread, NULL);
	names->running = false;
}
