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

/* How long the drive has worked until that time of its clock. Its stalls are [k every, k every + for), k = 1, 2, ... */
static int64_t work_time(const struct drive *drive, int64_t clock_ns)
{
	int64_t every = drive->is.stall_every_ns, stall = drive->is.stall_for_ns, periods, into;

	if (!every || clock_ns < every)
		return clock_ns;
	periods = clock_ns / every;
	into = clock_ns % every;
	return clock_ns - (periods - 1) * stall - (into < stall ? into : stall);
}

/* When it has worked so long: the first such time. */
static int64_t clock_of_work(const struct drive *drive, int64_t work_ns)
{
	int64_t every = drive->is.stall_every_ns, stall = drive->is.stall_for_ns, periods;

	if (!every || work_ns <= every)
		return work_ns;
	periods = (work_ns - every - 1) / (every - stall) + 1;
	return work_ns + periods * stall;
}

/* ---- heat and power ---- */

static double power_w(const struct drive *drive)
{
	const struct drive_parameters *is = &drive->is;
	double power = is->idle_w;

	if (drive->reads && is->read_w > power)
		power = is->read_w;
	if ((drive->writes || drive->others) && is->write_w > power)
		power = is->write_w;
	return drive->throttled ? is->idle_w + (power - is->idle_w) * is->throttle_factor : power;
}

static void spend(struct drive *drive, int64_t until_ns)
{
	double energy = power_w(drive) * (double)(until_ns - drive->at_ns);

	drive->tick_energy += energy;
	drive->sample_energy += energy;
	drive->at_ns = until_ns;
}

/* The temperature after a time at that mean power; `decay` is what is left of its distance from where it tends to. */
static void warm(struct drive *drive, double mean_w, double decay)
{
	double tends_to = drive->is.ambient_c + drive->is.heating_c_per_w * mean_w;

	drive->temperature_c = tends_to + (drive->temperature_c - tends_to) * decay;
	if (drive->temperature_c >= drive->is.throttle_at_c)
		drive->throttled = true;
	else if (drive->temperature_c < drive->is.throttle_until_c)
		drive->throttled = false;
}

/* Every other one goes, and its power into the mean of the one behind it. */
static void thin_samples(struct drive *drive)
{
	const struct drive_sample *last = &drive->samples[drive->sample_count - 1];

	/* The one behind the last is still to come. */
	if (drive->sample_count % 2 == 0) {
		drive->sampled_ns = last[-1].time_ns;
		drive->sample_energy += last->power_w * (double)(last->time_ns - last[-1].time_ns);
	}
	for (unsigned i = 1; 2 * i < drive->sample_count; i++) {
		struct drive_sample *kept = &drive->samples[i];
		double before_w = drive->samples[2 * i - 1].power_w;

		*kept = drive->samples[2 * i];
		kept->power_w = (kept->power_w + before_w) / 2;
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

/* ---- what is mapped ---- */

static bool is_mapped(const struct drive *drive, uint32_t granule)
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

/* What had been written there takes its share of the cache and of the decline with it. */
static void unmap_range(struct drive *drive, int64_t offset_bytes, int64_t length_bytes)
{
	int64_t end = offset_bytes + length_bytes, before = drive->mapped;
	int64_t first = (offset_bytes + drive->granule_bytes - 1) / drive->granule_bytes;
	int64_t behind = end >= (int64_t)drive->is.capacity_bytes ? drive->granules : end / drive->granule_bytes;
	double kept;

	for (int64_t granule = first; granule < behind; granule++) {
		if (!is_mapped(drive, granule))
			continue;
		drive->map[granule / 64] &= ~(1ull << granule % 64);
		drive->mapped--;
	}
	if (drive->mapped == before)
		return;
	kept = (double)drive->mapped / (double)before;
	drive->cache_fill_bytes *= kept;
	drive->random_written_bytes *= kept;
}

/* ---- I/O ---- */

/* Sequential is what begins where one of the last writes elsewhere had ended. */
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

/* Of writes that do not go into the cache. */
static double write_bandwidth(const struct drive *drive, bool sequential)
{
	const struct drive_parameters *is = &drive->is;
	double declined;

	if (sequential || !drive->random_written_bytes)
		return is->write_bandwidth;
	declined = (double)drive->mapped / (double)drive->granules *
		   (1 - exp(-drive->random_written_bytes / is->random_write_decline_bytes));
	return is->write_bandwidth - (is->write_bandwidth - is->random_write_bandwidth) * declined;
}

static double write_transfer_ns(struct drive *drive, int64_t offset_bytes, int64_t length_bytes)
{
	bool sequential = is_sequential(drive, offset_bytes, length_bytes);
	double room = drive->is.cache_bytes - drive->cache_fill_bytes;
	double cached = room <= 0 ? 0 : room < (double)length_bytes ? room : (double)length_bytes;
	double took_ns = 0, direct = (double)length_bytes - cached;

	if (cached > 0)
		took_ns += cached * 1e9 / drive->is.cache_bandwidth;
	if (direct > 0)
		took_ns += direct * 1e9 / write_bandwidth(drive, sequential);
	drive->cache_fill_bytes += cached;
	if (!sequential)
		drive->random_written_bytes += (double)length_bytes;
	map_range(drive, offset_bytes, length_bytes);
	return took_ns;
}

/* From 1 - jitter to 1 + jitter, by the number of the I/O: splitmix64. */
static double jitter(const struct drive *drive)
{
	uint64_t x = (uint64_t)drive->is.seed + drive->ios * 0x9e3779b97f4a7c15ull;

	if (!drive->is.jitter)
		return 1;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return 1 + drive->is.jitter * (2 * ((double)(x >> 11) / 9007199254740992.0) - 1);
}

/* Through the channel that is free first, then over a bus. Work time. */
static int64_t carry(struct drive *drive, int64_t start, double latency_ns, double transfer_ns, int64_t *bus_free)
{
	int64_t *first = &drive->channel_free[0];

	for (unsigned i = 1; i < (unsigned)drive->is.channels; i++)
		if (drive->channel_free[i] < *first)
			first = &drive->channel_free[i];
	*first = later(start, *first) + rounded(latency_ns);
	return *bus_free = later(*first, *bus_free) + rounded(transfer_ns);
}

static int64_t carry_write(struct drive *drive, int64_t start, int32_t flags, double latency_ns, double transfer_ns,
			   double slower)
{
	int64_t flush_ns = rounded(drive->is.flush_latency_ns * slower), done;

	if (flags & FLAG_PREFLUSH)
		start = later(start, drive->writes_done) + flush_ns;
	done = carry(drive, start, latency_ns, transfer_ns, &drive->write_bus_free);
	if (flags & FLAG_FUA)
		done += flush_ns;
	drive->writes_done = later(drive->writes_done, done);
	return done;
}

static int64_t carry_out(struct drive *drive, int64_t start, enum trace_op op, int32_t flags, int64_t offset_bytes,
			 int64_t length_bytes, double slower)
{
	const struct drive_parameters *is = &drive->is;
	double varied = slower * jitter(drive);

	switch (op) {
	case OP_READ:
		if (drive->writes) {
			slower *= is->read_slowdown;
			varied *= is->read_slowdown;
		}
		return carry(drive, start, is->read_latency_ns * varied,
			     (double)length_bytes * 1e9 / is->read_bandwidth * slower, &drive->read_bus_free);
	case OP_WRITE:
		return carry_write(drive, start, flags, is->write_latency_ns * varied,
				   write_transfer_ns(drive, offset_bytes, length_bytes) * slower, slower);
	case OP_WRITE_ZEROES:
		map_range(drive, offset_bytes, length_bytes);
		return carry_write(drive, start, flags, is->write_latency_ns * varied, 0, slower);
	case OP_DISCARD:
		unmap_range(drive, offset_bytes, length_bytes);
		drive->blocked_until = start + rounded((is->discard_latency_ns + is->discard_ns_per_gb *
							(double)length_bytes / 1e9) * slower);
		return drive->blocked_until;
	default:
		return later(start, drive->writes_done) + rounded(is->flush_latency_ns * slower);
	}
}

static void drain(struct drive *drive, int64_t now_ns)
{
	double drained = drive->is.cache_drain * (double)(now_ns - drive->idle_since_ns) / 1e9;

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
	slower = drive->throttled ? 1 / drive->is.throttle_factor : 1;
	if (!drive->reads && !drive->writes && !drive->others)
		drain(drive, now_ns);
	done = carry_out(drive, later(work_time(drive, drive->clock_ns + now_ns), drive->blocked_until), op, flags,
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

int drive_begin(struct drive *drive)
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
	drive->tick_decay = exp(-(double)DRIVE_TICK_NS / drive->is.thermal_time_ns);
	drive->sample_every_ns = NS_PER_S;
	drive->samples[drive->sample_count++] = (struct drive_sample){
		0, drive->temperature_c, drive->is.idle_w, drive->throttled,
	};
	return 0;
}

void drive_end(struct drive *drive, int64_t now_ns)
{
	int64_t rest_ns;

	advance(drive, now_ns);
	rest_ns = now_ns - (drive->next_tick_ns - DRIVE_TICK_NS);
	if (rest_ns > 0)
		warm(drive, drive->tick_energy / (double)rest_ns, exp(-(double)rest_ns / drive->is.thermal_time_ns));
	if (!drive->reads && !drive->writes && !drive->others)
		drain(drive, now_ns);
	/* The end is none of the seconds, mostly, and without it nobody would know of the time since the last one. */
	if (now_ns > drive->sampled_ns)
		add_sample(drive, now_ns);
	drive->clock_ns += now_ns;
}
