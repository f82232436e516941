/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The issuer for simulated drives. */
#pragma once

#include <stdio.h>

#include "drive_model.h"
#include "issue/issuer.h"
#include "run/clock.h"

/* One drive for each target, on the clock of the run. Returns NULL after an error message. */
struct issuer *simulated_issuer(struct drive *drives, unsigned drive_count, unsigned depth, struct run_clock *clock);

/* After the run: writes the samples and states of the drives as a JSON object. */
void simulated_write_json(struct issuer *issuer, FILE *out);
