/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The issuer of simulated drives. */
#ifndef BLKREEL_SIMULATED_H
#define BLKREEL_SIMULATED_H

#include <stdio.h>

#include "drive_model.h"
#include "issuer.h"
#include "run_clock.h"

/* For a drive for each target; `clock` is the run's. It lives until the process ends; NULL, having said why on stderr. */
struct issuer *simulated_issuer(struct drive *drives, unsigned drive_count, unsigned depth, struct run_clock *clock);

/* Once the run is over: what became of the drives, as a JSON object. */
void simulated_write_json(struct issuer *issuer, FILE *out);

#endif
