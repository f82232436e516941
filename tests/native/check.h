/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a native test needs: a check that says what it expected and where. */
#pragma once

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);   \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define CHECK_EQUAL(got, wanted)                                                                  \
	do {                                                                                      \
		intmax_t got_ = (got), wanted_ = (wanted);                                        \
		if (got_ != wanted_) {                                                            \
			fprintf(stderr, "%s:%d: %s is %jd, not %jd\n", __FILE__, __LINE__, #got,  \
				got_, wanted_);                                                   \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)
