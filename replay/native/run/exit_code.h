/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Exit codes of the helper; replay/engine/engine.py maps them to its errors. */
#pragma once

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_WRONG_USAGE = 2,
	EXIT_REFUSED = 5,
};
