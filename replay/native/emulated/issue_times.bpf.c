/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "turnaround/request_device.h"

#include "codes.h"
#include "issue_times.h"

#define SECTOR_BYTES 512
/* Of the kernel's cmd_flags. */
#define OP_MASK 0xffu

char LICENSE[] SEC("license") = "GPL";

/* Some hundred I/Os more than a device has in flight; the server takes them with each request. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} noted SEC(".maps");

/* major << 20 | minor, of user space; 0: no device yet. */
__u32 device;

static __always_inline void note(struct request *rq, bool is_complete)
{
	struct noted *io;
	unsigned int op; /* the kernel's read, write and flush are 0, 1 and 2, as in enum trace_op */

	if (!device || device_of(rq) != device)
		return;
	op = BPF_CORE_READ(rq, cmd_flags) & OP_MASK;
	if (op > OP_FLUSH)
		return;
	io = bpf_ringbuf_reserve(&noted, sizeof(*io), 0);
	if (!io)
		return;
	io->at_ns = bpf_ktime_get_ns();
	io->offset_bytes = op == OP_FLUSH ? 0 : BPF_CORE_READ(rq, __sector) * SECTOR_BYTES;
	io->length_bytes = BPF_CORE_READ(rq, __data_len);
	io->op = op;
	io->is_complete = is_complete;
	bpf_ringbuf_submit(io, BPF_RB_NO_WAKEUP);
}

SEC("raw_tp/block_rq_issue")
int note_issue(struct bpf_raw_tracepoint_args *args)
{
	note(issued_request(args), false);
	return 0;
}

SEC("raw_tp/block_rq_complete")
int note_completion(struct bpf_raw_tracepoint_args *args)
{
	note((struct request *)args->args[0], true);
	return 0;
}
