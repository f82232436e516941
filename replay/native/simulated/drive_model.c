/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "drive_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t rounded(double ns)
{
	return (int64_t)floor(ns + 0.5);
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* ---- stalls ---- */

/* Work time at a time of the drive's clock. The stalls are [k every, k every + for), k = 1, 2, ... */
static int64_t work_time(const struct drive *drive, int64_t clock_ns)
{
	int64_t every = (int64_t)drive->parameters.stall_every_ns, stall = (int64_t)drive->parameters.stall_for_ns;
	int64_t periods, into;

	if (!every || clock_ns < every)
		return clock_ns;
	periods = clock_ns / every;
	into = clock_ns % every;
	return clock_ns - (periods - 1) * stall - (into < stall ? into : stall);
}

/* The first time of the clock with this work time. */
static int64_t clock_of_work(const struct drive *drive, int64_t work_ns)
{
	int64_t every = (int64_t)drive->parameters.stall_every_ns, stall = (int64_t)drive->parameters.stall_for_ns;
	int64_t periods;

	if (!every || work_ns <= every)
		return work_ns;
	periods = (work_ns - every - 1) / (every - stall) + 1;
	return work_ns + periods * stall;
}

/* ---- heat and power ---- */

static double power_w(const struct drive *drive)
{
	const struct drive_parameters *p = &drive->parameters;
	double power = p->idle_w;

	if (drive->reads && p->read_w > power)
		power = p->read_w;
	if ((drive->writes || drive->others) && p->write_w > power)
		power = p->write_w;
	return drive->throttled ? p->idle_w + (power - p->idle_w) * p->throttle_factor : power;
}

static void spend(struct drive *drive, int64_t until_ns)
{
	double energy = power_w(drive) * (double)(until_ns - drive->at_ns);

	drive->tick_energy += energy;
	drive->sample_energy += energy;
	drive->at_ns = until_ns;
}

/* The temperature after a time at this mean power; decay: the remaining share of its distance from equilibrium. */
static void warm(struct drive *drive, double mean_w, double decay)
{
	double equilibrium = drive->parameters.ambient_c + drive->parameters.heating_c_per_w * mean_w;

	drive->temperature_c = equilibrium + (drive->temperature_c - equilibrium) * decay;
	if (drive->temperature_c >= drive->parameters.throttle_at_c)
		drive->throttled = true;
	else if (drive->temperature_c < drive->parameters.throttle_until_c)
		drive->throttled = false;
}

/* Drops every other sample; its power enters the mean of the next one. */
static void thin_samples(struct drive *drive)
{
	const struct drive_sample *last = &drive->samples[drive->sample_count - 1];

	if (drive->sample_count % 2 == 0) {
		drive->sampled_ns = last[-1].time_ns;
		drive->sample_energy += last->power_w * (double)(last->time_ns - last[-1].time_ns);
	}
	for (unsigned i = 1; 2 * i < drive->sample_count; i++) {
		struct drive_sample *sample = &drive->samples[i];
		double before_w = drive->samples[2 * i - 1].power_w;

		*sample = drive->samples[2 * i];
		sample->power_w = (sample->power_w + before_w) / 2;
	}
	drive->sample_count = (drive->sample_count + 1) / 2;
	drive->sample_every_ns *= 2;
}

static void add_sample(struct drive *drive, int64_t now_ns)
{
	drive->samples[drive->sample_count++] = (struct drive_sample){
		now_ns, drive->temperature_c, drive->sample_energy / (double)(now_ns - drive->sampled_ns), drive->throttled,
	};
	drive->sample_energy = 0;
	drive->sampled_ns = now_ns;
}

static void take_sample(struct drive *drive, int64_t now_ns)
{
	if (drive->sample_count == DRIVE_SAMPLES) {
		thin_samples(drive);
		if (now_ns % drive->sample_every_ns)
			return;
	}
	add_sample(drive, now_ns);
}

static void advance(struct drive *drive, int64_t now_ns)
{
	while (drive->next_tick_ns <= now_ns) {
		spend(drive, drive->next_tick_ns);
		warm(drive, drive->tick_energy / (double)DRIVE_TICK_NS, drive->tick_decay);
		drive->tick_energy = 0;
		if (drive->next_tick_ns % drive->sample_every_ns == 0)
			take_sample(drive, drive->next_tick_ns);
		drive->next_tick_ns += DRIVE_TICK_NS;
	}
	spend(drive, now_ns);
}

/* ---- mapped ranges ---- */

static bool is_mapped(const struct drive *drive, int64_t granule)
{
	return drive->map[granule / 64] >> granule % 64 & 1;
}

static void map_range(struct drive *drive, int64_t offset_bytes, int64_t length_bytes)
{
	int64_t last = (offset_bytes + length_bytes - 1) / drive->granule_bytes;

	for (int64_t granule = offset_bytes / drive->granule_bytes; granule <= last && granule < drive->granules; granule++) {
		if (is_mapped(drive, granule))
			continue;
		drive->map[granule / 64] |= 1ull << granule % 64;
		drive->mapped++;
	}
}

/* The unmapped share also leaves the cache and the count of random writes. */
static void unmap_range(struct drive *drive, int64_t offset_bytes, int64_t length_bytes)
{
	int64_t end = offset_bytes + length_bytes, before = drive->mapped;
	int64_t first = (offset_bytes + drive->granule_bytes - 1) / drive->granule_bytes;
	int64_t behind = end >= (int64_t)drive->parameters.capacity_bytes ? drive->granules : end / drive->granule_bytes;
	double share;

	for (int64_t granule = first; granule < behind; granule++) {
		if (!is_mapped(drive, granule))
			continue;
		drive->map[granule / 64] &= ~(1ull << granule % 64);
		drive->mapped--;
	}
	if (drive->mapped == before)
		return;
	share = (double)drive->mapped / (double)before;
	drive->cache_fill_bytes *= share;
	drive->random_written_bytes *= share;
}

/* ---- I/O ---- */

/* A write is sequential if it begins at the end of one of the last write streams. */
static bool is_sequential(struct drive *drive, int64_t offset_bytes, int64_t length_bytes)
{
	for (unsigned i = 0; i < DRIVE_WRITE_HEADS; i++) {
		if (drive->write_heads[i] != offset_bytes)
			continue;
		drive->write_heads[i] += length_bytes;
		return true;
	}
	drive->write_heads[drive->next_head] = offset_bytes + length_bytes;
	drive->next_head = (drive->next_head + 1) % DRIVE_WRITE_HEADS;
	return false;
}

/* For writes past the cache. */
static double write_bandwidth(const struct drive *drive, bool sequential)
{
	const struct drive_parameters *p = &drive->parameters;
	double declined;

	if (sequential || drive->random_written_bytes == 0)
		return p->write_bandwidth;
	declined = (double)drive->mapped / (double)drive->granules *
		   (1 - exp(-drive->random_written_bytes / p->random_write_decline_bytes));
	return p->write_bandwidth - (p->write_bandwidth - p->random_write_bandwidth) * declined;
}

static double write_transfer_ns(struct drive *drive, int64_t offset_bytes, int64_t length_bytes)
{
	bool sequential = is_sequential(drive, offset_bytes, length_bytes);
	double room = drive->parameters.cache_bytes - drive->cache_fill_bytes;
	double cached = room <= 0 ? 0 : room < (double)length_bytes ? room : (double)length_bytes;
	double took_ns = 0, direct = (double)length_bytes - cached;

	if (cached > 0)
		took_ns += cached * 1e9 / drive->parameters.cache_bandwidth;
	if (direct > 0)
		took_ns += direct * 1e9 / write_bandwidth(drive, sequential);
	drive->cache_fill_bytes += cached;
	if (!sequential)
		drive->random_written_bytes += (double)length_bytes;
	map_range(drive, offset_bytes, length_bytes);
	return took_ns;
}

/* A uniform number in [0, 1) by the number of the I/O: splitmix64. Streams are independent. */
static double uniform(const struct drive *drive, uint64_t stream)
{
	uint64_t x = (uint64_t)drive->parameters.seed + stream + drive->ios * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return (double)(x >> 11) / 9007199254740992.0;
}

/* A factor from 1 - jitter to 1 + jitter. */
static double jitter(const struct drive *drive)
{
	if (drive->parameters.jitter == 0)
		return 1;
	return 1 + drive->parameters.jitter * (2 * uniform(drive, 0) - 1);
}

/* A factor whose distribution has these quantiles, linear between them. */
static double spread(const struct drive *drive, const double factors[DRIVE_SPREAD_POINTS])
{
	static const double shares[DRIVE_SPREAD_POINTS] = {0, 0.1, 0.5, 0.9, 0.99, 0.999, 1};
	double share;
	unsigned i = 1;

	if (factors[0] == factors[DRIVE_SPREAD_POINTS - 1])
		return factors[0];
	share = uniform(drive, 0x5bd1e995);
	while (share > shares[i])
		i++;
	return factors[i - 1] + (factors[i] - factors[i - 1]) * (share - shares[i - 1]) / (shares[i] - shares[i - 1]);
}

/*
 * Occupies the channel that is free first, then a bus. Returns the completion in work time. `factor` changes only the
 * completion: a drive that is slow with one I/O goes on with the others.
 */
static int64_t transfer(struct drive *drive, int64_t start, double latency_ns, double factor, double transfer_ns,
			int64_t *bus_free)
{
	int64_t *first = &drive->channel_free[0];

	for (unsigned i = 1; i < (unsigned)drive->parameters.channels; i++)
		if (drive->channel_free[i] < *first)
			first = &drive->channel_free[i];
	*first = later(start, *first) + rounded(latency_ns);
	*bus_free = later(*first, *bus_free) + rounded(transfer_ns);
	return *bus_free + rounded(latency_ns * (factor - 1));
}

static int64_t execute_write(struct drive *drive, int64_t start, int32_t flags, double latency_ns, double transfer_ns,
			   double slower)
{
	int64_t flush_ns = rounded(drive->parameters.flush_latency_ns * slower), done;

	if (flags & FLAG_PREFLUSH)
		start = later(start, drive->writes_done) + flush_ns;
	done = transfer(drive, start, latency_ns, spread(drive, drive->parameters.write_spread), transfer_ns,
			&drive->write_bus_free);
	if (flags & FLAG_FUA)
		done += flush_ns;
	drive->writes_done = later(drive->writes_done, done);
	return done;
}

static int64_t execute(struct drive *drive, int64_t start, enum trace_op op, int32_t flags, int64_t offset_bytes,
			 int64_t length_bytes, double slower)
{
	const struct drive_parameters *p = &drive->parameters;
	double varied = slower * jitter(drive);

	switch (op) {
	case OP_READ:
		if (drive->writes) {
			slower *= p->read_slowdown;
			varied *= p->read_slowdown;
		}
		return transfer(drive, start, p->read_latency_ns * varied, spread(drive, p->read_spread),
			     (double)length_bytes * 1e9 / p->read_bandwidth * slower, &drive->read_bus_free);
	case OP_WRITE:
		return execute_write(drive, start, flags, p->write_latency_ns * varied,
				   write_transfer_ns(drive, offset_bytes, length_bytes) * slower, slower);
	case OP_WRITE_ZEROES:
		map_range(drive, offset_bytes, length_bytes);
		return execute_write(drive, start, flags, p->write_latency_ns * varied, 0, slower);
	case OP_DISCARD:
		unmap_range(drive, offset_bytes, length_bytes);
		drive->blocked_until = start + rounded((p->discard_latency_ns + p->discard_ns_per_gb *
							(double)length_bytes / 1e9) * slower);
		return drive->blocked_until;
	default:
		return later(start, drive->writes_done) + rounded(p->flush_latency_ns * slower);
	}
}

static void drain(struct drive *drive, int64_t now_ns)
{
	double drained = drive->parameters.cache_drain * (double)(now_ns - drive->idle_since_ns) / 1e9;

	drive->cache_fill_bytes = drained < drive->cache_fill_bytes ? drive->cache_fill_bytes - drained : 0;
	drive->idle_since_ns = now_ns;
}

static unsigned *counter(struct drive *drive, enum trace_op op)
{
	return op == OP_READ ? &drive->reads : op == OP_WRITE ? &drive->writes : &drive->others;
}

int64_t drive_submit(struct drive *drive, int64_t now_ns, enum trace_op op, int32_t flags, int64_t offset_bytes,
		     int64_t length_bytes)
{
	double slower;
	int64_t done;

	advance(drive, now_ns);
	slower = drive->throttled ? 1 / drive->parameters.throttle_factor : 1;
	if (!drive->reads && !drive->writes && !drive->others)
		drain(drive, now_ns);
	done = execute(drive, later(work_time(drive, drive->clock_ns + now_ns), drive->blocked_until), op, flags,
			 offset_bytes, length_bytes, slower);
	++*counter(drive, op);
	drive->ios++;
	return later(now_ns, clock_of_work(drive, done) - drive->clock_ns);
}

void drive_complete(struct drive *drive, int64_t now_ns, enum trace_op op)
{
	advance(drive, now_ns);
	--*counter(drive, op);
	drive->idle_since_ns = now_ns;
}

int drive_init(struct drive *drive)
{
	int64_t work_ns = work_time(drive, drive->clock_ns);

	drive->samples = calloc(DRIVE_SAMPLES + 1, sizeof(*drive->samples));
	if (!drive->samples)
		return -ENOMEM;
	for (unsigned i = 0; i < DRIVE_MAX_CHANNELS; i++)
		drive->channel_free[i] = work_ns;
	drive->read_bus_free = drive->write_bus_free = drive->blocked_until = drive->writes_done = work_ns;
	for (unsigned i = 0; i < DRIVE_WRITE_HEADS; i++)
		drive->write_heads[i] = -1;
	drive->next_tick_ns = DRIVE_TICK_NS;
	drive->tick_decay = exp(-(double)DRIVE_TICK_NS / drive->parameters.thermal_time_ns);
	drive->sample_every_ns = NS_PER_S;
	drive->samples[drive->sample_count++] = (struct drive_sample){
		0, drive->temperature_c, drive->parameters.idle_w, drive->throttled,
	};
	return 0;
}

void drive_deinit(struct drive *drive)
{
	free(drive->samples);
}

void drive_end(struct drive *drive, int64_t now_ns)
{
	int64_t rest_ns;

	advance(drive, now_ns);
	rest_ns = now_ns - (drive->next_tick_ns - DRIVE_TICK_NS);
	if (rest_ns > 0)
		warm(drive, drive->tick_energy / (double)rest_ns, exp(-(double)rest_ns / drive->parameters.thermal_time_ns));
	if (!drive->reads && !drive->writes && !drive->others)
		drain(drive, now_ns);
	/* The last sample covers the time since the last full second. */
	if (now_ns > drive->sampled_ns)
		add_sample(drive, now_ns);
	drive->clock_ns += now_ns;
}
