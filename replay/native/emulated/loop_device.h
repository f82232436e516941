/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The loop device over the file of an emulated drive. */
#pragma once

#include <stdint.h>

struct loop_device {
	int number; /* -1: none is attached */
	char node[32];
	/* Settings of its queue that outlast it. */
	char read_ahead_kb[24];
};

/* Attaches a free loop device with direct I/O over the file. Returns 0, or -1 after an error message. */
int loop_attach(struct loop_device *loop, const char *path, uint32_t block_bytes);

/*
 * Detaches it. Programs that have it open go on, and it is detached when the last of them has closed it. Without effect
 * if something else has been attached since.
 */
void loop_detach(struct loop_device *loop, const char *path);
