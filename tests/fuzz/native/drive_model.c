/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The file of a simulated drive. Input: the file. A drive that was read must do I/O, and its saved state must be finite. */
#include "fuzz.h"
#include "cleanup.h"
#include "simulated/drive_model.h"

static void use(struct drive *drive)
{
	char *state CLEANUP_FREE = NULL;
	size_t size = 0;
	FILE *file;
	int64_t now_ns = 0;

	for (int i = 0; i < 8; i++) {
		enum trace_op op = (enum trace_op)(i % OP_COUNT);
		int64_t done_ns = drive_submit(drive, now_ns, op, 0, i * 4096ll, op == OP_FLUSH ? 0 : 4096);

		REQUIRE(done_ns >= now_ns);
		if (done_ns > 1ll << 50)
			return;
		now_ns = done_ns;
		drive_complete(drive, now_ns, op);
	}
	drive_end(drive, now_ns);
	file = open_memstream(&state, &size);
	REQUIRE(file);
	drive_write_state(drive, file);
	drive_write_samples(drive, file);
	fclose(file);
	REQUIRE(!strstr(state, "nan") && !strstr(state, "inf"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct drive drive;
	char why[128];
	FILE *file;

	if (!size)
		return 0;
	file = fmemopen((void *)(uintptr_t)data, size, "r");
	REQUIRE(file);
	if (!drive_read(&drive, file, why, sizeof(why)))
		REQUIRE(why[0]);
	else if (!drive_init(&drive)) {
		use(&drive);
		drive_deinit(&drive);
	}
	fclose(file);
	return 0;
}
