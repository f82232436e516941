/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A drive that is calculated: when an I/O completes that is submitted now, and
 * what becomes of the drive's cache, temperature and power meanwhile. The
 * formulas are in docs/replay.md, "Simulated drive". Nothing here looks at a
 * clock: times are nanoseconds since the start of the run, given by the caller
 * in their order.
 */
#ifndef BLKREEL_DRIVE_MODEL_H
#define BLKREEL_DRIVE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "clock.h"
#include "codes.h"

#define DRIVE_MAX_CHANNELS 1024
#define DRIVE_MAX_GRANULES 65536u /* in so many parts at most it is known what is mapped */
#define DRIVE_WRITE_HEADS 8       /* sequential streams of writes that are known as such */
#define DRIVE_TICK_NS (100 * NS_PER_MS) /* of the temperature */
#define DRIVE_SAMPLES 100000u

/* All as doubles, so that one table reads them; bandwidths in bytes a second. */
struct drive_parameters {
	double capacity_bytes;
	double read_latency_ns, write_latency_ns, flush_latency_ns, discard_latency_ns, discard_ns_per_gb;
	double read_bandwidth, write_bandwidth;
	double channels;
	double cache_bytes, cache_bandwidth, cache_drain;
	double random_write_bandwidth, random_write_decline_bytes;
	double read_slowdown;
	double stall_every_ns, stall_for_ns; /* 0: never */
	double ambient_c, heating_c_per_w, thermal_time_ns;
	double throttle_at_c, throttle_until_c, throttle_factor;
	double idle_w, read_w, write_w;
	double jitter, seed;
};

struct drive_sample {
	int64_t time_ns;
	double temperature_c;
	double power_w; /* mean since the sample before */
	bool throttled;
};

struct drive {
	struct drive_parameters is;

	/* What outlasts a run. */
	int64_t clock_ns; /* at its start */
	double cache_fill_bytes;
	double random_written_bytes;
	double temperature_c;
	bool throttled;
	uint64_t ios;
	int64_t granule_bytes;
	uint32_t granules, mapped;
	uint64_t map[DRIVE_MAX_GRANULES / 64];

	/*
	 * Of a run. The times at which parts are free are work time: the drive's
	 * clock without its stalls.
	 */
	int64_t channel_free[DRIVE_MAX_CHANNELS];
	int64_t read_bus_free, write_bus_free;
	int64_t blocked_until; /* by a discard */
	int64_t writes_done;   /* of those taken so far, the last */
	int64_t write_heads[DRIVE_WRITE_HEADS];
	unsigned next_head;
	unsigned reads, writes, others; /* in flight */
	int64_t idle_since_ns;

	int64_t at_ns;        /* up to where the energy is added up */
	int64_t next_tick_ns;
	double tick_decay;    /* of the temperature's distance, in a tick */
	double tick_energy;   /* in watts times nanoseconds */
	double sample_energy;
	int64_t sample_every_ns, sampled_ns;
	struct drive_sample *samples;
	unsigned sample_count;
};

/*
 * Reads lines of `name value`: parameters, and the state of a drive that was
 * used before. NULL, or what is wrong with them.
 */
const char *drive_read(struct drive *drive, FILE *file);

/* At the start of a run; 0 or a negative errno. */
int drive_begin(struct drive *drive);

/* Takes an I/O at that time, and returns when it completes. */
int64_t drive_submit(struct drive *drive, int64_t now_ns, enum trace_op op, int32_t flags, int64_t offset_bytes,
		     int64_t length_bytes);

/* That time has come. */
void drive_complete(struct drive *drive, int64_t now_ns, enum trace_op op);

/* Nothing is in flight, and the run is over. */
void drive_end(struct drive *drive, int64_t now_ns);

/* What outlasts the run, as a JSON object; and [[time_ns, temperature_c, power_w, throttled 0 or 1], ...] at 1 Hz, and at the end. */
void drive_write_state(const struct drive *drive, FILE *out);
void drive_write_samples(const struct drive *drive, FILE *out);

#endif
