/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "drive_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MOST_PROGRAMS 1e6 /* of one I/O on one die */

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

/* ---- programs and the cache ---- */

/*
 * Data that reached the drive's buffer at `at` is programmed: each program takes a die for its whole time. Dies take
 * turns. `bandwidth` is that of all dies together, which gives the bytes of a program.
 */
static void program(struct drive *drive, int64_t at, double bytes, double bandwidth, bool cached)
{
	const struct drive_parameters *p = &drive->parameters;
	double length_ns = cached ? p->cache_program_ns : p->program_ns, count;
	unsigned dies = (unsigned)p->channels;
	int64_t rounds;
	unsigned rest;

	if (length_ns == 0)
		return;
	drive->programs_due[cached] += bytes * 1e9 * p->channels / (bandwidth * length_ns);
	/* The bound keeps the times of a drive described with absurd values within 64 bits. */
	count = fmin(floor(drive->programs_due[cached]), MOST_PROGRAMS * p->channels);
	drive->programs_due[cached] = fmax(0, drive->programs_due[cached] - count);
	rounds = (int64_t)(count / p->channels);
	rest = (unsigned)(count - (double)rounds * p->channels);
	for (unsigned i = 0; i < dies && (rounds || i < rest); i++) {
		unsigned die = (drive->next_die + i) % dies;

		drive->program_length[die] = rounded(length_ns);
		if (drive->programs_end[die] - at < 1ll << 60)
			drive->programs_end[die] = later(at, drive->programs_end[die]) +
						   (rounds + (i < rest)) * drive->program_length[die];
	}
	drive->next_die = (drive->next_die + rest) % dies;
}

/* When no die that a read needs programs any more. A read goes before programs that have not begun. */
static int64_t after_program(const struct drive *drive, int64_t start, int64_t offset_bytes, int64_t length_bytes)
{
	int64_t first = offset_bytes / DRIVE_STRIPE_BYTES;
	int64_t stripes = (offset_bytes + length_bytes - 1) / DRIVE_STRIPE_BYTES - first + 1, wait_ns = 0;
	int64_t dies = (int64_t)drive->parameters.channels;

	if (drive->parameters.program_ns == 0 && drive->parameters.cache_program_ns == 0)
		return start;
	for (int64_t stripe = first; stripe < first + (stripes < dies ? stripes : dies); stripe++) {
		int64_t ahead_ns = drive->programs_end[stripe % dies] - start;

		if (ahead_ns > 0)
			wait_ns = later(wait_ns, ahead_ns % drive->program_length[stripe % dies]);
	}
	return start + wait_ns;
}

static bool is_idle(const struct drive *drive)
{
	return !drive->reads && !drive->writes && !drive->others;
}

/* The cache drains since the last I/O was submitted or completed. Beside I/O, folding takes the dies. */
static void settle_cache(struct drive *drive, int64_t now_ns)
{
	const struct drive_parameters *p = &drive->parameters;
	bool idle = is_idle(drive);
	double drained = (idle ? p->cache_drain : p->cache_fold) * (double)(now_ns - drive->cache_at_ns) / 1e9;

	drained = drained < drive->cache_fill_bytes ? drained : drive->cache_fill_bytes;
	drive->cache_fill_bytes -= drained;
	drive->cache_at_ns = now_ns;
	if (!idle && drained > 0)
		program(drive, work_time(drive, drive->clock_ns + now_ns), drained, p->write_bandwidth, false);
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

/* What a write takes on its bus, and what of it goes to the cache. */
struct write_data {
	double took_ns, cached, direct, bandwidth;
};

static struct write_data take_write(struct drive *drive, int64_t offset_bytes, int64_t length_bytes)
{
	bool sequential = is_sequential(drive, offset_bytes, length_bytes);
	double room = drive->parameters.cache_bytes - drive->cache_fill_bytes;
	double cached = room <= 0 ? 0 : room < (double)length_bytes ? room : (double)length_bytes;
	struct write_data data = {
		.cached = cached, .direct = (double)length_bytes - cached, .bandwidth = write_bandwidth(drive, sequential),
	};

	if (cached > 0)
		data.took_ns += cached * 1e9 / drive->parameters.cache_bandwidth;
	if (data.direct > 0)
		data.took_ns += data.direct * 1e9 / data.bandwidth;
	drive->cache_fill_bytes += cached;
	if (!sequential)
		drive->random_written_bytes += (double)length_bytes;
	map_range(drive, offset_bytes, length_bytes);
	return data;
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

/* Occupies the one of `count` units that is free first: returns it, to be set to its new end. */
static int64_t *first_free(int64_t *units, double count)
{
	int64_t *first = units;

	for (unsigned i = 1; i < (unsigned)count; i++)
		if (units[i] < *first)
			first = &units[i];
	return first;
}

static int64_t occupy_channel(struct drive *drive, int64_t start, double latency_ns)
{
	int64_t *channel = first_free(drive->channel_free, drive->parameters.channels);

	return *channel = later(start, *channel) + rounded(latency_ns);
}

/* Occupies the link, which both directions share. Returns when the transfer begins. */
static int64_t occupy_link(struct drive *drive, int64_t start, int64_t length_bytes)
{
	double bandwidth = drive->parameters.link_bandwidth;

	if (bandwidth == 0)
		return start;
	start = later(start, drive->link_free);
	drive->link_free = start + rounded((double)length_bytes * 1e9 / bandwidth);
	return start;
}

/*
 * Channel, then bus and link together. Returns the completion in work time. `factor` changes only the completion: a
 * drive that is slow with one I/O goes on with the others. A verify needs no link.
 */
static int64_t execute_read(struct drive *drive, int64_t start, enum trace_op op, double latency_ns, double factor,
			    double transfer_ns, int64_t offset_bytes, int64_t length_bytes)
{
	int64_t flash = occupy_channel(drive, after_program(drive, start, offset_bytes, length_bytes), latency_ns);
	int64_t begin = later(flash, drive->read_bus_free), done;
	bool has_link = op != OP_VERIFY && drive->parameters.link_bandwidth != 0;

	if (has_link)
		begin = occupy_link(drive, begin, length_bytes);
	drive->read_bus_free = begin + rounded(transfer_ns);
	done = has_link ? later(drive->read_bus_free, drive->link_free) : drive->read_bus_free;
	return done + rounded(latency_ns * (factor - 1));
}

/* A flush before or after a write: what it waits for, and what it holds up. */
static int64_t flush(struct drive *drive, int64_t start, int64_t flush_ns)
{
	bool alone = drive->parameters.flush_blocks != 0;
	int64_t done = later(start, alone ? drive->ios_done : drive->writes_done) + flush_ns;

	if (alone)
		drive->blocked_until = later(drive->blocked_until, done);
	return done;
}

/* The link, and while it transfers, channel and bus. data: of which the transfer takes `slower` times as long. */
static int64_t execute_write(struct drive *drive, int64_t start, int32_t flags, double latency_ns,
			     const struct write_data *data, double slower)
{
	int64_t flush_ns = rounded(drive->parameters.flush_latency_ns * slower), begin, done;

	if (flags & FLAG_PREFLUSH)
		start = flush(drive, start, flush_ns);
	begin = occupy_link(drive, start, (int64_t)(data->cached + data->direct));
	drive->write_bus_free = later(occupy_channel(drive, begin, latency_ns), drive->write_bus_free) +
				rounded(data->took_ns * slower);
	done = drive->write_bus_free;
	if (drive->parameters.link_bandwidth != 0)
		done = later(done, drive->link_free);
	program(drive, done, data->cached, drive->parameters.cache_bandwidth, true);
	program(drive, done, data->direct, data->bandwidth, false);
	done += rounded(latency_ns * (spread(drive, drive->parameters.write_spread) - 1));
	if (flags & FLAG_FUA) {
		done += flush_ns;
		if (drive->parameters.flush_blocks != 0)
			drive->blocked_until = later(drive->blocked_until, done);
	}
	drive->writes_done = later(drive->writes_done, done);
	return done;
}

static int64_t execute(struct drive *drive, int64_t start, enum trace_op op, int32_t flags, int64_t offset_bytes,
		       int64_t length_bytes, double slower)
{
	const struct drive_parameters *p = &drive->parameters;
	double varied = slower * jitter(drive);
	struct write_data data = { .bandwidth = 1 };

	switch (op) {
	case OP_READ:
	case OP_VERIFY:
	case OP_COMPARE:
		if (drive->writes) {
			slower *= p->read_slowdown;
			varied *= p->read_slowdown;
		}
		return execute_read(drive, start, op, p->read_latency_ns * varied, spread(drive, p->read_spread),
				    (double)length_bytes * 1e9 / p->read_bandwidth * slower, offset_bytes, length_bytes);
	case OP_WRITE:
	case OP_ZONE_APPEND:
		data = take_write(drive, offset_bytes, length_bytes);
		return execute_write(drive, start, flags, p->write_latency_ns * varied, &data, slower);
	case OP_WRITE_ZEROES:
		map_range(drive, offset_bytes, length_bytes);
		return execute_write(drive, start, flags, p->write_latency_ns * varied, &data, slower);
	case OP_DISCARD:
		unmap_range(drive, offset_bytes, length_bytes);
		drive->blocked_until = start + rounded((p->discard_latency_ns + p->discard_ns_per_gb *
							(double)length_bytes / 1e9) * slower);
		return drive->blocked_until;
	default:
		return flush(drive, start, rounded(p->flush_latency_ns * slower));
	}
}

/* Takes tokens from a bucket. Returns when there are enough of them. */
static int64_t pay(double *paid_ns, double rate, double credit, double tokens, int64_t start)
{
	double allowed_ns;

	if (rate == 0)
		return start;
	allowed_ns = *paid_ns - credit * 1e9 / rate;
	if (allowed_ns > (double)start)
		start = (int64_t)ceil(allowed_ns);
	*paid_ns = fmax(*paid_ns, (double)start) + tokens * 1e9 / rate;
	return start;
}

/* The completion in work time of an I/O that the drive takes when it has room for another command. */
static int64_t take(struct drive *drive, int64_t start, enum trace_op op, int32_t flags, int64_t offset_bytes,
		    int64_t length_bytes, double slower)
{
	const struct drive_parameters *p = &drive->parameters;
	int64_t *command = p->commands == 0 ? NULL : first_free(drive->command_free, p->commands), done;

	if (op == OP_READ || op_is_write(op)) {
		start = pay(&drive->iops_paid_ns, p->iops_limit, p->iops_credit, 1, start);
		start = pay(&drive->rate_paid_ns, p->rate_limit, p->rate_credit_bytes, (double)length_bytes, start);
	}
	if (command)
		start = later(start, *command);
	done = execute(drive, start, op, flags, offset_bytes, length_bytes, slower);
	if (command)
		*command = done;
	drive->ios_done = later(drive->ios_done, done);
	return done;
}

static unsigned *counter(struct drive *drive, enum trace_op op)
{
	return op == OP_READ ? &drive->reads : op_is_write(op) ? &drive->writes : &drive->others;
}

int64_t drive_submit(struct drive *drive, int64_t now_ns, enum trace_op op, int32_t flags, int64_t offset_bytes,
		     int64_t length_bytes)
{
	double slower;
	int64_t done;

	advance(drive, now_ns);
	slower = drive->throttled ? 1 / drive->parameters.throttle_factor : 1;
	settle_cache(drive, now_ns);
	done = take(drive, later(work_time(drive, drive->clock_ns + now_ns), drive->blocked_until), op, flags,
		    offset_bytes, length_bytes, slower);
	++*counter(drive, op);
	drive->ios++;
	return later(now_ns, clock_of_work(drive, done) - drive->clock_ns);
}

void drive_complete(struct drive *drive, int64_t now_ns, enum trace_op op)
{
	advance(drive, now_ns);
	settle_cache(drive, now_ns);
	--*counter(drive, op);
}

int drive_init(struct drive *drive)
{
	int64_t work_ns = work_time(drive, drive->clock_ns);

	drive->samples = calloc(DRIVE_SAMPLES + 1, sizeof(*drive->samples));
	if (!drive->samples)
		return -ENOMEM;
	for (unsigned i = 0; i < DRIVE_MAX_CHANNELS; i++)
		drive->channel_free[i] = drive->command_free[i] = drive->programs_end[i] = work_ns;
	drive->iops_paid_ns = drive->rate_paid_ns = (double)work_ns;
	drive->read_bus_free = drive->write_bus_free = drive->link_free = work_ns;
	drive->blocked_until = drive->writes_done = drive->ios_done = work_ns;
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
	settle_cache(drive, now_ns);
	/* The last sample covers the time since the last full second. */
	if (now_ns > drive->sampled_ns)
		add_sample(drive, now_ns);
	drive->clock_ns += now_ns;
}
