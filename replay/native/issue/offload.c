/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "offload.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "run/confine.h"

#define WORKERS 4

struct request {
	int target_fd;
	uint32_t slot;
	unsigned long command;
	uint64_t range[2];
};

struct offload {
	pthread_mutex_t lock;
	pthread_cond_t work;
	int event_fd;
	unsigned depth;
	bool stopping;
	pthread_t threads[WORKERS];
	unsigned thread_count;
	/* Rings of `depth` entries; the counts only grow. */
	struct request *requests;
	unsigned requests_put, requests_taken;
	struct offload_result *results;
	unsigned results_put, results_taken;
};

static void *execute_requests(void *argument)
{
	struct offload *offload = argument;
	const uint64_t one = 1;

	confine_thread(OTHER_THREAD);
	for (;;) {
		struct request request;
		int status;

		pthread_mutex_lock(&offload->lock);
		while (offload->requests_put == offload->requests_taken && !offload->stopping)
			pthread_cond_wait(&offload->work, &offload->lock);
		if (offload->stopping) {
			pthread_mutex_unlock(&offload->lock);
			return NULL;
		}
		request = offload->requests[offload->requests_taken++ % offload->depth];
		pthread_mutex_unlock(&offload->lock);

		status = ioctl(request.target_fd, request.command, request.range) ? -errno : 0;

		pthread_mutex_lock(&offload->lock);
		offload->results[offload->results_put++ % offload->depth] =
			(struct offload_result){ request.slot, status };
		pthread_mutex_unlock(&offload->lock);
		while (write(offload->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
}

struct offload *offload_new(unsigned depth)
{
	struct offload *offload = calloc(1, sizeof(*offload));

	if (!offload)
		return NULL;
	pthread_mutex_init(&offload->lock, NULL);
	pthread_cond_init(&offload->work, NULL);
	offload->depth = depth;
	offload->event_fd = eventfd(0, EFD_CLOEXEC);
	offload->requests = calloc(depth, sizeof(*offload->requests));
	offload->results = calloc(depth, sizeof(*offload->results));
	if (offload->event_fd < 0 || !offload->requests || !offload->results)
		goto fail;
	for (; offload->thread_count < WORKERS; offload->thread_count++)
		if (pthread_create(&offload->threads[offload->thread_count], NULL, execute_requests, offload))
			goto fail;
	return offload;
fail:
	offload_free(offload);
	return NULL;
}

void offload_free(struct offload *offload)
{
	if (!offload)
		return;
	pthread_mutex_lock(&offload->lock);
	offload->stopping = true;
	pthread_cond_broadcast(&offload->work);
	pthread_mutex_unlock(&offload->lock);
	for (unsigned i = 0; i < offload->thread_count; i++)
		pthread_join(offload->threads[i], NULL);
	pthread_cond_destroy(&offload->work);
	pthread_mutex_destroy(&offload->lock);
	if (offload->event_fd >= 0)
		close(offload->event_fd);
	free(offload->requests);
	free(offload->results);
	free(offload);
}

int offload_event_fd(struct offload *offload)
{
	return offload->event_fd;
}

void offload_ioctl(struct offload *offload, int target_fd, unsigned long command, uint32_t slot, int64_t start,
		   int64_t length)
{
	pthread_mutex_lock(&offload->lock);
	offload->requests[offload->requests_put++ % offload->depth] =
		(struct request){ target_fd, slot, command, { (uint64_t)start, (uint64_t)length } };
	pthread_cond_signal(&offload->work);
	pthread_mutex_unlock(&offload->lock);
}

unsigned offload_reap(struct offload *offload, struct offload_result *results, unsigned room)
{
	unsigned count = 0;

	pthread_mutex_lock(&offload->lock);
	while (count < room && offload->results_put != offload->results_taken)
		results[count++] = offload->results[offload->results_taken++ % offload->depth];
	pthread_mutex_unlock(&offload->lock);
	return count;
}
