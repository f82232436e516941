/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Scope guards: a variable declared with one of these is released at the end of its scope. */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(function) __attribute__((cleanup(function)))
#define CLEANUP_FREE CLEANUP(cleanup_free)
#define CLEANUP_FCLOSE CLEANUP(cleanup_fclose)
#define CLEANUP_CLOSEDIR CLEANUP(cleanup_closedir)
#define CLEANUP_CLOSE CLEANUP(cleanup_close)

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

static inline void cleanup_fclose(FILE **file)
{
	if (*file)
		fclose(*file);
}

static inline void cleanup_closedir(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
