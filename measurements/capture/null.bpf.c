/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Programs that do nothing: what they seem to cost is the cost of measuring (kernel.bpf_stats_enabled). */
#define SEC(name) __attribute__((section(name), used))

char LICENSE[] SEC("license") = "GPL";

#ifdef CLASSIC
#define KIND "tp/block"
#endif

SEC(KIND "/block_io_start") int null_start(void *context)
{
	return 0;
}

SEC(KIND "/block_rq_issue") int null_issue(void *context)
{
	return 0;
}

SEC(KIND "/block_rq_complete") int null_complete(void *context)
{
	return 0;
}
