/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A model of a drive: completion times of I/Os, and the drive's cache, temperature and power. The formulas are in
 * docs/replay.md, "Simulated drive". The caller passes times in order, in nanoseconds since the start of the run.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "run/clock.h"
#include "codes.h"

#define DRIVE_MAX_CHANNELS 1024
#define DRIVE_MAX_GRANULES 65536u /* of the map of written ranges */
#define DRIVE_STRIPE_BYTES 16384 /* consecutive stripes are on consecutive dies */
#define DRIVE_MAX_PROGRAM_NS (10 * NS_PER_S)
#define DRIVE_WRITE_HEADS 8       /* sequential write streams that are detected */
#define DRIVE_TICK_NS (100 * NS_PER_MS) /* of the temperature */
#define DRIVE_SAMPLES 100000u
#define DRIVE_SPREAD_POINTS 7

/* All doubles, so that one table reads them. Bandwidths are in bytes per second. */
struct drive_parameters {
	double capacity_bytes;
	double read_latency_ns, write_latency_ns, flush_latency_ns, discard_latency_ns, discard_ns_per_gb;
	double read_bandwidth, write_bandwidth;
	double channels;
	double cache_bytes, cache_bandwidth, cache_drain;
	double random_write_bandwidth, random_write_decline_bytes;
	double read_slowdown;
	double link_bandwidth; /* of both directions together; 0: no limit */
	double commands;       /* that the drive works on at once; 0: no limit */
	/* Token buckets in front of the drive, as of a provider: rates, 0: no limit, and the credit of each. */
	double iops_limit, iops_credit, rate_limit, rate_credit_bytes;
	double flush_blocks;   /* 1: a flush runs alone */
	double program_ns, cache_program_ns; /* of one program on a die; 0: reads never wait for one */
	double cache_fold;     /* rate at which the cache drains while I/O is in flight */
	double stall_every_ns, stall_for_ns; /* 0: never */
	double ambient_c, heating_c_per_w, thermal_time_ns;
	double throttle_at_c, throttle_until_c, throttle_factor;
	double idle_w, read_w, write_w;
	double jitter, seed;
	/* Factors of the latency at the shares 0, 0.1, 0.5, 0.9, 0.99, 0.999 and 1 of the I/Os, in rising order. */
	double read_spread[DRIVE_SPREAD_POINTS], write_spread[DRIVE_SPREAD_POINTS];
};

struct drive_sample {
	int64_t time_ns;
	double temperature_c;
	double power_w; /* mean since the previous sample */
	bool throttled;
};

struct drive {
	struct drive_parameters parameters;

	/* State that is saved between runs. */
	int64_t clock_ns; /* at the start of the run */
	double cache_fill_bytes;
	double random_written_bytes;
	double temperature_c;
	bool throttled;
	uint64_t ios;
	int64_t granule_bytes;
	uint32_t granules, mapped;
	uint64_t map[DRIVE_MAX_GRANULES / 64];

	/* State of a run. The times at which parts are free are in work time: the drive's clock without its stalls. */
	int64_t channel_free[DRIVE_MAX_CHANNELS];
	int64_t command_free[DRIVE_MAX_CHANNELS];
	int64_t read_bus_free, write_bus_free, link_free;
	/* The dies, as many as channels: end of the programs that each has to do, and the length of the last. */
	int64_t programs_end[DRIVE_MAX_CHANNELS], program_length[DRIVE_MAX_CHANNELS];
	double programs_due[2]; /* direct, cached: fraction of a program not yet given to a die */
	unsigned next_die;
	double iops_paid_ns, rate_paid_ns; /* work time up to which the tokens of each bucket are spent */
	int64_t blocked_until; /* by a discard, or by a flush that runs alone */
	int64_t writes_done;   /* completion of the last write */
	int64_t ios_done;      /* completion of the last I/O */
	int64_t write_heads[DRIVE_WRITE_HEADS];
	unsigned next_head;
	unsigned reads, writes, others; /* in flight */
	int64_t cache_at_ns; /* up to which the cache has drained */

	int64_t at_ns;        /* up to which the energy is summed */
	int64_t next_tick_ns;
	double tick_decay;    /* of the temperature's distance from equilibrium, per tick */
	double tick_energy;   /* in watts times nanoseconds */
	double sample_energy;
	int64_t sample_every_ns, sampled_ns;
	struct drive_sample *samples;
	unsigned sample_count;
};

/* Reads lines of `name value`: parameters and saved state. Returns false with the reason in `why`. */
bool drive_read(struct drive *drive, FILE *file, char *why, size_t size);

/* At the start of a run. Returns 0 or -ENOMEM. */
int drive_init(struct drive *drive);
void drive_deinit(struct drive *drive);

/* Submits an I/O. Returns its completion time. */
int64_t drive_submit(struct drive *drive, int64_t now_ns, enum trace_op op, int32_t flags, int64_t offset_bytes,
		     int64_t length_bytes);

/* At the completion time of an I/O. */
void drive_complete(struct drive *drive, int64_t now_ns, enum trace_op op);

/* At the end of the run, with nothing in flight. */
void drive_end(struct drive *drive, int64_t now_ns);

/* The saved state as a JSON object; [[time_ns, temperature_c, power_w, throttled 0 or 1], ...] at 1 Hz and at the end. */
void drive_write_state(const struct drive *drive, FILE *out);
void drive_write_samples(const struct drive *drive, FILE *out);
