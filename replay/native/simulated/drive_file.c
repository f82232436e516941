/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reads the parameters and state of a simulated drive; writes its state and samples. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "drive_model.h"

static const struct {
	const char *name;
	size_t offset;
} parameters[] = {
#define PARAMETER(name) { #name, offsetof(struct drive, parameters.name) }
	PARAMETER(capacity_bytes),	   PARAMETER(read_latency_ns),	     PARAMETER(write_latency_ns),
	PARAMETER(flush_latency_ns),	   PARAMETER(discard_latency_ns),    PARAMETER(discard_ns_per_gb),
	PARAMETER(read_bandwidth),	   PARAMETER(write_bandwidth),	     PARAMETER(channels),
	PARAMETER(cache_bytes),		   PARAMETER(cache_bandwidth),	     PARAMETER(cache_drain),
	PARAMETER(random_write_bandwidth), PARAMETER(random_write_decline_bytes), PARAMETER(read_slowdown),
	PARAMETER(stall_every_ns),	   PARAMETER(stall_for_ns),	     PARAMETER(ambient_c),
	PARAMETER(heating_c_per_w),	   PARAMETER(thermal_time_ns),	     PARAMETER(throttle_at_c),
	PARAMETER(throttle_until_c),	   PARAMETER(throttle_factor),	     PARAMETER(idle_w),
	PARAMETER(read_w),		   PARAMETER(write_w),		     PARAMETER(jitter),
	PARAMETER(seed),		   PARAMETER(link_bandwidth),	     PARAMETER(commands),
	PARAMETER(flush_blocks),	   PARAMETER(program_ns),	     PARAMETER(cache_program_ns),
	PARAMETER(cache_fold),		   PARAMETER(iops_limit),	     PARAMETER(iops_credit),
	PARAMETER(rate_limit),		   PARAMETER(rate_credit_bytes),
#undef PARAMETER
#define SPREAD(name) \
	{ #name "_0", offsetof(struct drive, parameters.name[0]) }, \
	{ #name "_1", offsetof(struct drive, parameters.name[1]) }, \
	{ #name "_2", offsetof(struct drive, parameters.name[2]) }, \
	{ #name "_3", offsetof(struct drive, parameters.name[3]) }, \
	{ #name "_4", offsetof(struct drive, parameters.name[4]) }, \
	{ #name "_5", offsetof(struct drive, parameters.name[5]) }, \
	{ #name "_6", offsetof(struct drive, parameters.name[6]) }
	SPREAD(read_spread), SPREAD(write_spread),
#undef SPREAD
};

#define PARAMETERS (sizeof(parameters) / sizeof(parameters[0]))

/* The map of written ranges: a hexadecimal digit for four granules, the lowest bit first. */
static bool read_map(struct drive *drive, const char *digits)
{
	uint32_t granule = 0;

	for (; *digits; digits++) {
		const char *hex = "0123456789abcdef", *digit = strchr(hex, *digits);

		if (!digit)
			return false;
		for (unsigned bit = 0; bit < 4; bit++, granule++) {
			if (!((digit - hex) >> bit & 1))
				continue;
			if (granule >= DRIVE_MAX_GRANULES)
				return false;
			drive->map[granule / 64] |= 1ull << granule % 64;
			drive->mapped++;
		}
	}
	return true;
}

static bool read_value(struct drive *drive, uint64_t *seen, const char *name, const char *text)
{
	char *end;

	for (size_t i = 0; i < PARAMETERS; i++) {
		if (strcmp(parameters[i].name, name))
			continue;
		*(double *)((char *)drive + parameters[i].offset) = strtod(text, &end);
		*seen |= 1ull << i;
		return end != text && !*end;
	}
	if (!strcmp(name, "mapped"))
		return read_map(drive, text);
	if (!strcmp(name, "clock_ns"))
		drive->clock_ns = strtoll(text, &end, 10);
	else if (!strcmp(name, "ios"))
		drive->ios = strtoull(text, &end, 10);
	else if (!strcmp(name, "throttled"))
		drive->throttled = strtol(text, &end, 10);
	else if (!strcmp(name, "granule_bytes"))
		drive->granule_bytes = strtoll(text, &end, 10);
	else if (!strcmp(name, "cache_fill_bytes"))
		drive->cache_fill_bytes = strtod(text, &end);
	else if (!strcmp(name, "random_written_bytes"))
		drive->random_written_bytes = strtod(text, &end);
	else if (!strcmp(name, "temperature_c"))
		drive->temperature_c = strtod(text, &end);
	else
		return false;
	return end != text && !*end;
}

static bool is_program_time(double ns)
{
	return ns == 0 || (ns >= 1 && ns <= DRIVE_MAX_PROGRAM_NS);
}

static const char *check(struct drive *drive, uint64_t seen)
{
	const struct drive_parameters *p = &drive->parameters;
	int64_t granules;

	if (seen != (1ull << PARAMETERS) - 1)
		return "parameters are missing";
	if (drive->granule_bytes <= 0 || p->capacity_bytes <= 0)
		return "it has no size";
	if (p->channels < 1 || p->channels > DRIVE_MAX_CHANNELS)
		return "channels out of range";
	if (!(p->commands >= 0 && p->commands <= DRIVE_MAX_CHANNELS))
		return "commands out of range";
	if (!is_program_time(p->program_ns) || !is_program_time(p->cache_program_ns))
		return "program times out of range";
	if (p->stall_every_ns > 0 && p->stall_for_ns >= p->stall_every_ns)
		return "stall_for_ns must be less than stall_every_ns";
	granules = ((int64_t)p->capacity_bytes + drive->granule_bytes - 1) / drive->granule_bytes;
	if (granules > DRIVE_MAX_GRANULES || drive->mapped > granules)
		return "its map does not fit its capacity";
	drive->granules = (uint32_t)granules;
	return NULL;
}

bool drive_read(struct drive *drive, FILE *file, char *why, size_t why_size)
{
	char *line CLEANUP_FREE = NULL;
	const char *problem;
	size_t size = 0;
	uint64_t seen = 0;

	memset(drive, 0, sizeof(*drive));
	while (getline(&line, &size, file) >= 0) {
		char *value = strchr(line, ' ');

		line[strcspn(line, "\n")] = 0;
		if (value)
			*value++ = 0;
		if (!value || !read_value(drive, &seen, line, value)) {
			snprintf(why, why_size, "invalid value: %.60s", line);
			return false;
		}
	}
	problem = check(drive, seen);
	if (problem)
		snprintf(why, why_size, "%s", problem);
	return !problem;
}

void drive_write_state(const struct drive *drive, FILE *out)
{
	fprintf(out,
		"{\"clock_ns\": %" PRId64 ", \"ios\": %" PRIu64 ", \"throttled\": %d, \"granule_bytes\": %" PRId64
		", \"cache_fill_bytes\": %.17g, \"random_written_bytes\": %.17g, \"temperature_c\": %.17g, \"mapped\": \"",
		drive->clock_ns, drive->ios, drive->throttled, drive->granule_bytes, drive->cache_fill_bytes,
		drive->random_written_bytes, drive->temperature_c);
	for (uint32_t granule = 0; granule < drive->granules; granule += 4)
		fputc("0123456789abcdef"[drive->map[granule / 64] >> granule % 64 & 15], out);
	fputs("\"}", out);
}

void drive_write_samples(const struct drive *drive, FILE *out)
{
	fputc('[', out);
	for (unsigned i = 0; i < drive->sample_count; i++) {
		const struct drive_sample *sample = &drive->samples[i];

		fprintf(out, "%s[%" PRId64 ", %.6f, %.6f, %d]", i ? ", " : "", sample->time_ns, sample->temperature_c,
			sample->power_w, sample->throttled);
	}
	fputc(']', out);
}
