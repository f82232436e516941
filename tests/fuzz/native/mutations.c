/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs a fuzz target without libFuzzer, with the same inputs each time: every file of a corpus, then mutations of them.
 *
 *     fuzz-TARGET [-runs=N] [-seed=N] FILE-OR-DIRECTORY...
 *
 * The input that made the target fail is in ./crash-input then.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define MAX_INPUT_BYTES 65536
#define MAX_CORPUS_FILES 4096

struct corpus_file {
	char *path;
	uint8_t *data;
	size_t size;
};

static struct corpus_file corpus[MAX_CORPUS_FILES];
static size_t corpus_files;
static uint64_t random_state;

/* xorshift64*, so that every C library gives the same numbers. */
static uint32_t any(uint32_t below)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return below ? (uint32_t)(((random_state * 2685821657736338717ull) >> 32) % below) : 0;
}

static void add_file(const char *path)
{
	struct corpus_file *file = &corpus[corpus_files++];
	FILE *stream = fopen(path, "re");

	REQUIRE(corpus_files <= MAX_CORPUS_FILES);
	if (!stream) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	file->path = strdup(path);
	file->data = malloc(MAX_INPUT_BYTES);
	REQUIRE(file->path && file->data);
	file->size = fread(file->data, 1, MAX_INPUT_BYTES, stream);
	fclose(stream);
}

static void add_path(const char *path)
{
	struct dirent **entries;
	struct stat status;
	int count;

	if (stat(path, &status) || !S_ISDIR(status.st_mode)) {
		add_file(path);
		return;
	}
	count = scandir(path, &entries, NULL, alphasort);
	REQUIRE(count >= 0);
	for (int i = 0; i < count; i++) {
		char *below;

		if (entries[i]->d_name[0] != '.') {
			REQUIRE(asprintf(&below, "%s/%s", path, entries[i]->d_name) > 0);
			add_path(below);
			free(below);
		}
		free(entries[i]);
	}
	free(entries);
}

/* A number where parsers go wrong, in one of the usual widths. */
static void put_number(uint8_t *data, size_t size)
{
	static const int64_t numbers[] = { 0, 1, -1, 2, 7, 255, 256, 511, 4096, INT16_MAX, INT16_MIN, UINT16_MAX, INT32_MAX,
					   INT32_MIN, UINT32_MAX, 1ll << 50, 1ll << 60, 1ll << 61, INT64_MAX, INT64_MIN,
					   INT64_MAX - 511 };
	int64_t number = numbers[any(sizeof(numbers) / sizeof(*numbers))];
	size_t width = 1ull << any(4);

	if (width <= size)
		memcpy(data + any((uint32_t)(size - width + 1)), &number, width);
}

static size_t insert(uint8_t *data, size_t size, const uint8_t *part, size_t part_bytes)
{
	size_t at = any((uint32_t)size + 1);

	if (size + part_bytes > MAX_INPUT_BYTES)
		return size;
	memmove(data + at + part_bytes, data + at, size - at);
	memcpy(data + at, part, part_bytes);
	return size + part_bytes;
}

static size_t mutate(uint8_t *data, size_t size)
{
	static uint8_t part[MAX_INPUT_BYTES];
	const struct corpus_file *other = &corpus[any((uint32_t)corpus_files)];
	size_t at = any((uint32_t)size), length = 1 + any((uint32_t)(size - at < 64 ? size - at : 64));

	switch (size ? any(9) : 6) {
	case 0:
	case 1:
		data[at] ^= (uint8_t)(1u << any(8));
		return size;
	case 2:
		data[at] = (uint8_t)any(256);
		return size;
	case 3:
	case 4:
		put_number(data, size);
		return size;
	case 5: /* cut out */
		length = length < size - at ? length : size - at;
		memmove(data + at, data + at + length, size - at - length);
		return size - length;
	case 6: { /* a part of another file */
		size_t from = any((uint32_t)other->size), rest = other->size - from;

		length = rest ? 1 + any((uint32_t)(rest < 256 ? rest : 256)) : 0;
		return insert(data, size, other->data + from, length < rest ? length : rest);
	}
	case 7: /* repeat */
		length = length < size - at ? length : size - at;
		memcpy(part, data + at, length);
		return insert(data, size, part, length);
	default: /* cut off */
		return any(8) ? size : at;
	}
}

/* Written before the run, because the sanitizers end the process. */
static void run_input(const uint8_t *data, size_t size)
{
	static int fd = -1;
	/* On the heap with its exact size, so that a read beyond the end is detected. */
	uint8_t *copy = malloc(size ? size : 1);

	if (fd < 0)
		fd = open("crash-input", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	REQUIRE(copy && fd >= 0 && pwrite(fd, data, size, 0) == (ssize_t)size && !ftruncate(fd, (off_t)size));
	if (size)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

int main(int argc, char **argv)
{
	static uint8_t data[MAX_INPUT_BYTES];
	unsigned long runs = 0, seed = 1;

	for (int i = 1; i < argc; i++) {
		if (sscanf(argv[i], "-runs=%lu", &runs) != 1 && sscanf(argv[i], "-seed=%lu", &seed) != 1)
			add_path(argv[i]);
	}
	REQUIRE(corpus_files);
	random_state = 0x9e3779b97f4a7c15ull + seed;
	for (size_t i = 0; i < corpus_files; i++) {
		run_input(corpus[i].data, corpus[i].size);
	}
	for (unsigned long run = 0; run < runs; run++) {
		const struct corpus_file *file = &corpus[any((uint32_t)corpus_files)];
		size_t size = file->size;

		memcpy(data, file->data, size);
		for (uint32_t changes = 1 + any(6); changes; changes--)
			size = mutate(data, size);
		run_input(data, size);
	}
	unlink("crash-input");
	fprintf(stderr, "%zu files, %lu mutations\n", corpus_files, runs);
	for (size_t i = 0; i < corpus_files; i++) {
		free(corpus[i].path);
		free(corpus[i].data);
	}
	return 0;
}
