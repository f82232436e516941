/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The drive model against cases computed by hand: what the second model of it (tests/support/reference) leaves out, and
 * what of its state comes and goes.
 */
#include "simulated/drive_model.h"

#include <math.h>

#include "check.h"
#include "drive_text.h"

#define US 1000ll
#define MS 1000000ll
#define S 1000000000ll
#define CHECK_NEAR(got, wanted) CHECK(fabs((got) - (wanted)) < 1e-9 * (1 + fabs(wanted)))

static struct drive drive;

static void make(const char *changes)
{
	make_drive(&drive, changes);
}

static int64_t submit(int64_t now_ns, enum trace_op op, int64_t offset_bytes, int64_t length_bytes)
{
	return drive_submit(&drive, now_ns, op, 0, offset_bytes, length_bytes);
}

/* Submits an I/O and completes it. */
static int64_t alone(int64_t now_ns, enum trace_op op, int64_t offset_bytes, int64_t length_bytes)
{
	int64_t done_ns = submit(now_ns, op, offset_bytes, length_bytes);

	drive_complete(&drive, done_ns, op);
	return done_ns;
}

static void channels_are_parallel_and_share_the_bus(void)
{
	make("");
	for (int i = 1; i <= 4; i++)
		CHECK_EQUAL(submit(0, OP_READ, 0, 4000), 80 * US + i * 1000);
	/* The fifth waits for a channel and not for the bus. */
	CHECK_EQUAL(submit(0, OP_READ, 0, 4000), 161 * US);
	/* A write takes the channel that is free at 80 us, and has its own bus. */
	CHECK_EQUAL(submit(0, OP_WRITE, 0, 1000), 101 * US);
}

static void cache_is_fast_until_full_and_drains_when_idle(void)
{
	make("cache_bytes 10000\ncache_drain 5000\n");
	CHECK_EQUAL(alone(0, OP_WRITE, 0, 8000), 20 * US + 4000);
	/* 2000 bytes at 2 GB/s and 6000 at 1 GB/s. The drain in 4 us is negligible. */
	CHECK_EQUAL(alone(24 * US, OP_WRITE, 8000, 8000), 51 * US);
	CHECK_NEAR(drive.cache_fill_bytes, 10000.0);
	CHECK_EQUAL(alone(51 * US, OP_WRITE, 16000, 1000), 72 * US);
	/* A second of idle time drains 5000. */
	CHECK_EQUAL(alone(S + 72 * US, OP_WRITE, 17000, 8000), S + 72 * US + 20 * US + 2500 + 3000);
	drive_end(&drive, 60 * S);
	CHECK_NEAR(drive.cache_fill_bytes, 0.0);
}

static void stalls_follow_the_clock_of_the_drive(void)
{
	make("stall_every_ns 1000000\nstall_for_ns 200000\nclock_ns 950000\n");
	CHECK_EQUAL(alone(0, OP_READ, 0, 4000), 281 * US);
}

static void random_write_bandwidth_declines(void)
{
	int64_t now_ns = 0, took_ns;
	double expected;

	make("random_write_bandwidth 1e8\n");
	/* Maps all in one sequential stream, whose first write counts as random. */
	for (int64_t at = 0; at < 1 << 30; at += 1 << 20)
		now_ns = alone(now_ns, OP_WRITE, at, 1 << 20);
	CHECK_EQUAL(drive.mapped, drive.granules);
	CHECK_NEAR(drive.random_written_bytes, 1048576.0);
	took_ns = alone(now_ns, OP_WRITE, 7 << 20, 1000000) - now_ns;
	expected = 1e9 - (1e9 - 1e8) * (1 - exp(-1.048576));
	CHECK(llabs(took_ns - 20 * US - (int64_t)(1e15 / expected)) <= 1);
	/* Sequential writes do not decline. */
	now_ns += took_ns;
	CHECK_EQUAL(alone(now_ns, OP_WRITE, (7 << 20) + 1000000, 1000000) - now_ns, 20 * US + MS);
	for (int i = 0; i < 100; i++)
		now_ns = alone(now_ns + MS, OP_WRITE, i * 3 << 20, 1000000);
	CHECK_EQUAL(alone(now_ns, OP_WRITE, 1 << 29, 1000000) - now_ns, 20 * US + 10 * MS);
}

static void discard_reduces_cache_fill_and_decline(void)
{
	make("cache_bytes 1e9\nrandom_write_bandwidth 1e8\ncache_drain 0\n");
	for (int i = 0; i < 8; i++)
		alone(i * S, OP_WRITE, (int64_t)(8 - i) << 20, 1 << 20);
	CHECK_EQUAL(drive.mapped, 8 * 64);
	CHECK_NEAR(drive.random_written_bytes, 8388608.0);
	alone(10 * S, OP_DISCARD, 0, 5 << 20); /* four of the eight, and an unmapped one */
	CHECK_NEAR(drive.random_written_bytes, 4194304.0);
	CHECK_NEAR(drive.cache_fill_bytes, 4194304.0);
	alone(11 * S, OP_DISCARD, 0, 6 << 20); /* one of four */
	CHECK_NEAR(drive.random_written_bytes, 3145728.0);
	/* Part of a granule unmaps nothing. */
	alone(12 * S, OP_DISCARD, (6 << 20) + 1, 16384);
	CHECK_NEAR(drive.random_written_bytes, 3145728.0);
	for (int64_t at = 0; at < 1 << 30; at += 1 << 28)
		alone(13 * S, OP_DISCARD, at, 1 << 28);
	CHECK_EQUAL(drive.mapped, 0);
	CHECK(drive.random_written_bytes == 0 && drive.cache_fill_bytes == 0);
}

static void temperature_approaches_equilibrium(void)
{
	make("");
	submit(0, OP_READ, 0, 4000);
	drive_end(&drive, 10 * S + 50 * MS);
	CHECK_NEAR(drive.temperature_c, 20 + 50 * (1 - exp(-1.005)));
	CHECK_EQUAL(drive.sample_count, 12);
	CHECK_EQUAL(drive.samples[11].time_ns, 10 * S + 50 * MS);
	CHECK_NEAR(drive.samples[11].power_w, 5.0);
	CHECK_EQUAL(drive.samples[10].time_ns, 10 * S);
	CHECK_NEAR(drive.samples[10].temperature_c, 20 + 50 * (1 - exp(-1.0)));
	CHECK_NEAR(drive.samples[10].power_w, 5.0);
	CHECK_NEAR(drive.samples[0].power_w, 0.0);
	CHECK_EQUAL(drive.clock_ns, 10 * S + 50 * MS);
}

static void power_is_the_mean_of_the_larger_class(void)
{
	make("idle_w 1\n");
	submit(0, OP_READ, 0, 4000);
	submit(250 * MS, OP_WRITE, 0, 4000);
	drive_complete(&drive, 500 * MS, OP_WRITE);
	drive_complete(&drive, 750 * MS, OP_READ);
	drive_end(&drive, S);
	CHECK_NEAR(drive.samples[1].power_w, (5 + 8 + 5 + 1) / 4.0);
}

static void throttling_has_hysteresis(void)
{
	make("throttle_at_c 45\nthrottle_until_c 44.8\nread_w 5\nthrottle_factor 0.25\n");
	/* 20 + 50 (1 - e^(-t/10)) reaches 45 at 6.93 s, and the temperature is computed ten times a second. */
	submit(0, OP_READ, 0, 4000);
	drive_complete(&drive, 6950 * MS, OP_READ);
	CHECK(!drive.throttled);
	CHECK_EQUAL(submit(6950 * MS, OP_READ, 0, 4000), 6950 * MS + 81 * US);
	drive_complete(&drive, 7000 * MS, OP_READ);
	CHECK(drive.throttled);
	/* I/O takes four times as long; at a quarter of the power the drive cools to 44.8 within 0.3 s. */
	CHECK_EQUAL(submit(7000 * MS, OP_READ, 0, 4000), 7000 * MS + 324 * US);
	drive_end(&drive, 8 * S);
	CHECK(!drive.samples[6].throttled);
	CHECK(drive.samples[7].throttled);
	CHECK(drive.samples[8].power_w > 1.25 && drive.samples[8].power_w < 5);
}

static void samples_of_long_runs_are_thinned(void)
{
	make("idle_w 2\n");
	drive_end(&drive, 250001 * S);
	CHECK(drive.sample_count <= DRIVE_SAMPLES + 1 && drive.sample_count > DRIVE_SAMPLES / 2);
	CHECK_EQUAL(drive.sample_every_ns, 4 * S);
	for (unsigned i = 0; i + 1 < drive.sample_count; i++) {
		CHECK_EQUAL(drive.samples[i].time_ns, i * 4 * S);
		CHECK_NEAR(drive.samples[i].power_w, 2.0);
	}
}

static void saved_state_is_restored(void)
{
	struct drive before;
	char state[40000], *at, *end;
	FILE *out;

	make("cache_bytes 1e6\nrandom_write_bandwidth 1e8\n");
	alone(0, OP_WRITE, 5 << 20, 100000);
	alone(S, OP_WRITE, (1 << 30) - 4096, 4096);
	drive_end(&drive, 2 * S);
	before = drive;
	out = fmemopen(state, sizeof(state), "w");
	drive_write_state(&drive, out);
	fclose(out);
	/* `"name": value, ` as lines. */
	at = end = state + 1;
	for (char *from = at; *from && *from != '}'; from++)
		if (*from == ',')
			*end++ = '\n';
		else if (*from != '"' && *from != ':' && !(*from == ' ' && end[-1] == '\n'))
			*end++ = *from;
	*end = 0;
	make(at);
	CHECK_EQUAL(drive.clock_ns, 2 * S);
	CHECK_EQUAL(drive.ios, 2);
	CHECK_EQUAL(drive.mapped, before.mapped);
	CHECK(!memcmp(drive.map, before.map, sizeof(drive.map)));
	CHECK(drive.cache_fill_bytes == before.cache_fill_bytes && drive.temperature_c == before.temperature_c);
	CHECK(drive.random_written_bytes == before.random_written_bytes);
}

static void jitter_is_bounded_and_reproducible(void)
{
	int64_t first[100], least = INT64_MAX, most = 0;

	for (int again = 0; again < 2; again++) {
		make("jitter 0.25\nseed 7\n");
		for (int i = 0; i < 100; i++) {
			int64_t took_ns = alone(i * S, OP_READ, 0, 4000) - i * S - 1000;

			CHECK(!again || first[i] == took_ns);
			first[i] = took_ns;
			least = took_ns < least ? took_ns : least;
			most = took_ns > most ? took_ns : most;
		}
	}
	CHECK(least >= 60 * US && least < 65 * US && most <= 100 * US && most > 95 * US);
}

static void invalid_descriptions_are_refused(void)
{
	char why[96], text[] = "capacity_bytes 4096\nflavour 3\n", few[] = "capacity_bytes 4096\n";
	FILE *file = fmemopen(text, strlen(text), "r");

	CHECK(!drive_read(&drive, file, why, sizeof(why)));
	CHECK(!strcmp(why, "invalid value: flavour"));
	fclose(file);
	file = fmemopen(few, strlen(few), "r");
	CHECK(!drive_read(&drive, file, why, sizeof(why)));
	CHECK(!strcmp(why, "parameters are missing"));
	fclose(file);
}

int main(void)
{
	channels_are_parallel_and_share_the_bus();
	cache_is_fast_until_full_and_drains_when_idle();
	stalls_follow_the_clock_of_the_drive();
	random_write_bandwidth_declines();
	discard_reduces_cache_fill_and_decline();
	temperature_approaches_equilibrium();
	power_is_the_mean_of_the_larger_class();
	throttling_has_hysteresis();
	samples_of_long_runs_are_thinned();
	saved_state_is_restored();
	jitter_is_bounded_and_reproducible();
	invalid_descriptions_are_refused();
	return 0;
}
