/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "request_device.h"

#define MAX_GAPS 1024

char LICENSE[] SEC("license") = "GPL";

/* major << 20 | minor, of user space. */
__u32 device;
__u64 completed_ns; /* 0: no I/O ended since the last was issued */
__u32 count;
__u64 gaps_ns[MAX_GAPS];

SEC("raw_tp/block_rq_issue")
int on_issue(struct bpf_raw_tracepoint_args *args)
{
	__u64 now_ns = bpf_ktime_get_ns(); /* without the time of these programs */
	__u32 index = count;

	if (!completed_ns || device_of(issued_request(args)) != device)
		return 0;
	if (index < MAX_GAPS) {
		gaps_ns[index] = now_ns - completed_ns;
		count = index + 1;
	}
	completed_ns = 0;
	return 0;
}

SEC("raw_tp/block_rq_complete")
int on_completion(struct bpf_raw_tracepoint_args *args)
{
	if (device_of((struct request *)args->args[0]) == device)
		completed_ns = bpf_ktime_get_ns();
	return 0;
}
