/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Status of a capture: JSON lines on stdout for the parent process, notes beside the rows.
 * capture/helper.py and traces/spool/rows_child.py read the lines.
 */
#pragma once

#include "session.h"

#include <stdbool.h>

/* Recording has begun. Also a note beside the rows, for a parent that is killed before it reads the line. */
void status_attached(struct session *session);

/* Counts so far. Skipped while the pipe is full. */
void status_progress(struct session *session);

/*
 * The live view's interval since the last call. With may_skip it is skipped while the pipe is full, and its rows are
 * part of the next interval.
 */
void status_live(struct session *session, bool may_skip);

/*
 * The totals: the end block, which completes the rows, and a line. After outbox_finish(). Returns 0, or -ENOMEM if
 * neither was written.
 */
int status_end(struct session *session);
