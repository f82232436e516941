#!/usr/bin/env python3
"""Cost of a capture compared with other tools that record each I/O. Prints the tables of docs/measurements.md.

    sudo .venv/bin/python -m measurements.capture.cost                        about 15 minutes
    sudo .venv/bin/python -m measurements.capture.cost --pairs 3 --seconds 1  quick look, 2 minutes
    sudo .venv/bin/python -m measurements.capture.cost --peers blkreel --depths 32 --pairs 60

Random 4K reads from a loop drive in memory: the drive adds no latency and all processors are busy, so the cost of a
capture directly reduces fio's throughput.

Throughput: one long fio run, in which the tool is switched on and off in short slots. The figure is the rate of a slot
with the tool / the mean of the slots before and after, so that other load affects both. A tool that cannot be switched
is started and stopped each time. Loss, size and memory: fio runs within a capture, compared with fio's I/O count.
Processor time: of the tool's processes by the scheduler; of its BPF programs by the kernel, less that of empty
programs; and in total the increase per I/O for fio, kernel threads and the tool, the one figure comparable
between all tools.
"""

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time

from measurements.capture import load
from measurements.capture.accounting import MemoryWatch, bpf_ns_per_io, bpf_objects, bpf_stats, cpu_ns, family
from measurements.capture.null_programs import NullPrograms
from measurements.capture.peers import all_peers, end_all
from measurements.lab import loop_drive, machine

IMAGE_BYTES = 1 << 30
BPF_WINDOWS, BPF_WINDOW_S = 9, 0.15
AFTER_SWITCH_S = 0.03
FEW_PAIRS = 10
LONG_SLOT_S = 0.6  # for tools that are started for each slot


def slots(peer, drive, directory, options, depth, rate=0):
    """(before, during, after) of each pair: windows of one long fio run."""
    pairs = []
    with load.long_fio(drive, depth, rate) as fio:
        own_pids = [*family(fio)]
        peer.start(drive, directory)
        pauses = options.method == "slots" and peer.pause()
        if not pauses:
            peer.stop()
        time.sleep(AFTER_SWITCH_S)
        slot_s = options.slot if pauses else max(options.slot, LONG_SLOT_S)
        slot_s = 2 * slot_s if rate else slot_s
        before = load.watch(drive, slot_s, own_pids)
        for _ in range(options.pairs if pauses or options.method == "starts" else max(2, options.pairs // 5)):
            peer.resume() if pauses else peer.start(drive, directory)
            time.sleep(AFTER_SWITCH_S)
            during = load.watch(drive, slot_s, [*own_pids, *peer.pids()])
            peer.pause() if pauses else peer.stop()
            time.sleep(AFTER_SWITCH_S)
            after = load.watch(drive, slot_s, [*own_pids, *peer.pids()] if pauses else own_pids)
            pairs.append((before, during, after))
            before = after
        if pauses:
            peer.stop()
    return pairs


def throughput_ratios(pairs):
    # A slot without any I/O, caused by other load, has no ratio.
    return [2 * during.iops / (before.iops + after.iops) for before, during, after in pairs if before.ios and after.ios]


def cpu_differences(pairs):
    return [during.cpu_ns_per_io - (before.cpu_ns_per_io + after.cpu_ns_per_io) / 2 for before, during, after in pairs
            if before.ios and during.ios and after.ios]


def cpu_ratios(pairs):
    """Share of fio's throughput that remains if the processors are the limit and nothing else runs."""
    return [(before.cpu_ns_per_io + after.cpu_ns_per_io) / 2 / during.cpu_ns_per_io for before, during, after in pairs
            if before.ios and during.ios and after.ios]


def whole_run(peer, drive, directory, options, depth):
    """A complete fio run within a capture."""
    peer.start(drive, directory)
    started_ns = cpu_ns(peer.pids())
    with MemoryWatch(peer.pids) as memory:
        iops, ios = load.fio(drive, depth, options.seconds)
        ended_ns = cpu_ns(peer.pids())
        kernel_bytes = peer.kernel_bytes()
        recording = peer.stop()
    return {
        "iops": iops, "ios": ios, "kept": recording.ios, "missing": ios - recording.ios,
        "reported_lost": recording.reported_lost,
        "bytes_per_io": recording.bytes / recording.ios if recording.ios else None,
        "cpu_ns_per_io": (ended_ns - started_ns) / ios, "finish_ns_per_io": max(0, recording.cpu_ns - ended_ns) / ios,
        "user_share": recording.user_share, "memory_bytes": memory.peak_bytes + kernel_bytes,
    }


def plain_ratio(peer, drive, directory, options, depth, number):
    """The throughput of whole runs, in pairs with alternating order."""
    if number % 2:
        within = whole_run(peer, drive, directory, options, depth)
        alone = load.fio(drive, depth, options.seconds)
    else:
        alone = load.fio(drive, depth, options.seconds)
        within = whole_run(peer, drive, directory, options, depth)
    return within["iops"] / alone[0]


def bpf_cost(peer, drive, directory, options, depth):
    """[(net ns per I/O, overhead of the measurement)] of a tool's BPF programs; [] without BPF programs."""
    if not peer.null_kind:
        return []
    null = NullPrograms(peer.null_kind, directory)
    with bpf_stats(), load.long_fio(drive, depth):
        with null:
            nulls = [bpf_window(null.pids, drive) for _ in range(BPF_WINDOWS)]
        peer.start(drive, directory)
        windows = [bpf_window(peer.pids, drive) for _ in range(BPF_WINDOWS)]
        peer.stop()
    null_ns = statistics.median(time_ns / runs for time_ns, runs in nulls)
    return [(time_ns - runs * null_ns, runs * null_ns) for time_ns, runs in windows]


def bpf_window(pids, drive):
    before = bpf_objects(pids())[0]
    window = load.watch(drive, BPF_WINDOW_S)
    return bpf_ns_per_io(before, bpf_objects(pids())[0], window.ios)


def measure(peer, drive, directory, options):
    result = {"throughput": {}, "cpu_ratio": {}, "cpu_more_ns": {}, "runs": {}, "bpf": {}}
    for depth in options.depths:
        if options.method == "runs":
            ratios = [plain_ratio(peer, drive, directory, options, depth, n) for n in range(options.pairs)]
        else:
            pairs = slots(peer, drive, directory, options, depth)
            ratios = throughput_ratios(pairs)
            result["cpu_more_ns"][depth] = cpu_differences(pairs)
            result["cpu_ratio"][depth] = cpu_ratios(pairs)
            say(f"{peer.name}, depth {depth}: processor time per I/O, without over with "
                f"{spread(result['cpu_ratio'][depth], '.3f')}, more {spread(result['cpu_more_ns'][depth])} ns")
        result["throughput"][depth] = ratios
        say(f"{peer.name}, depth {depth}: throughput {spread(ratios, '.3f')}")
        if options.only_throughput:
            continue
        runs = [whole_run(peer, drive, directory, options, depth) for _ in range(options.runs)]
        result["runs"][depth] = runs
        say(f"{peer.name}, depth {depth}: kept {sum(run['kept'] for run in runs):,} of "
            f"{sum(run['ios'] for run in runs):,}, reported: {runs[-1]['reported_lost']}")
        result["bpf"][depth] = bpf_cost(peer, drive, directory, options, depth)
    if not options.only_throughput:
        pairs = slots(peer, drive, directory, options, max(options.depths), options.rate)
        result["at_rate_more_ns"] = cpu_differences(pairs)
        say(f"{peer.name}: at {options.rate:,} a second: {spread(result['at_rate_more_ns'])} ns more per I/O")
    return result


def say(line):
    print(line, file=sys.stderr, flush=True)


def spread(values, form=",.0f"):
    """median [smallest .. largest], or a dash."""
    if not values:
        return "–"
    return f"{statistics.median(values):{form}} [{min(values):{form}} .. {max(values):{form}}]"


def table(results, depths):
    """Markdown table with a row for each tool."""
    yield ("| | " + " | ".join(f"fio's IOPS with over without, depth {depth}" for depth in depths)
           + f" | processor time per I/O without over with, depth {max(depths)} |")
    yield "|---" * (len(depths) + 2) + "|"
    for name, result in results.items():
        cells = [*(result["throughput"][depth] for depth in depths), result["cpu_ratio"].get(max(depths))]
        yield f"| {name} | " + " | ".join(spread(cell, ".3f") for cell in cells) + " |"
    if not all(result["runs"] for result in results.values()):
        return
    yield ""
    yield "| | I/Os missing, of fio's count | reported by the tool | bytes per I/O | memory, MiB |"
    yield "|---|---|---|---|---|"
    for name, result in results.items():
        runs = [run for depth in depths for run in result["runs"][depth]]
        ios, missing = sum(run["ios"] for run in runs), sum(max(0, run["missing"]) for run in runs)
        losses = dict.fromkeys(run["reported_lost"] or "nothing" for run in runs)
        size = spread([run["bytes_per_io"] for run in runs if run["bytes_per_io"]], ".1f")
        memory = max(run["memory_bytes"] for run in runs) / (1 << 20)
        yield f"| {name} | {missing:,} of {ios:,} ({missing / ios:.2%}) | {'; '.join(losses)} | {size} | {memory:.0f} |"
    yield ""
    yield ("| CPU per I/O, ns | BPF programs, " + ", ".join(f"depth {depth}" for depth in depths)
           + " | tool processes while capturing | user share of it | to finish the file "
           f"| total, depth {max(depths)} | total, at a fixed rate |")
    yield "|---|---|---|---|---|---|---|"
    for name, result in results.items():
        programs = "<br>".join(spread([net for net, _ in result["bpf"][depth]]) for depth in depths)
        runs = result["runs"][max(depths)]
        cells = (spread([run["cpu_ns_per_io"] for run in runs]),
                 f"{statistics.median(run['user_share'] for run in runs):.0%}",
                 spread([run["finish_ns_per_io"] for run in runs]), spread(result["cpu_more_ns"].get(max(depths))),
                 spread(result["at_rate_more_ns"]))
        yield f"| {name} | {programs} | " + " | ".join(cells) + " |"


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40, help="pairs of slots, per tool and depth")
    parser.add_argument("--slot", type=float, default=0.15, help="seconds of a slot")
    parser.add_argument("--runs", type=int, help="whole runs of fio, per tool and depth (2; 1 with few pairs)")
    parser.add_argument("--seconds", type=int, default=3, help="duration of a whole run (default: 3)")
    parser.add_argument("--depths", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--rate", type=int, default=50_000,
                        help="I/Os per second of the runs at a fixed rate")
    parser.add_argument("--peers", nargs="+", metavar="NAME", default=list(all_peers()),
                        help="of: " + "; ".join(all_peers()))
    parser.add_argument("--method", choices=["slots", "starts", "runs"], default="slots",
                        help="starts: start the tool for each slot; runs: whole fio runs with and without it")
    parser.add_argument("--only-throughput", action="store_true")
    parser.add_argument("--json", action="store_true", help="print one JSON document with every repetition")
    options = parser.parse_args(words)
    options.runs = options.runs or (2 if options.pairs >= FEW_PAIRS else 1)
    unknown = set(options.peers) - set(all_peers())
    if unknown:
        parser.error(f"no such tool: {', '.join(sorted(unknown))}; there are: {'; '.join(all_peers())}")
    return options


def main():
    options = arguments()
    # After SIGTERM it still stops the tool and releases the drive.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = {}
    with loop_drive(IMAGE_BYTES) as drive:
        for name in options.peers:
            peer = all_peers()[name]
            if reason := peer.lacks():
                say(f"{name}: left out, {reason}")
                continue
            # In memory, so that the speed of a disk does not matter.
            with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="blkreel-bench-") as directory:
                try:
                    results[name] = measure(peer, drive, directory, options)
                finally:
                    end_all()
    if options.json:
        print(json.dumps({"version": 1, "machine": machine(), "options": vars(options), "results": results}))
        return
    print(f"\n{machine()}; {options.pairs} pairs of slots of {options.slot} s, "
          f"{options.runs} runs of {options.seconds} s\n")
    print("\n".join(table(results, options.depths)))


if __name__ == "__main__":
    main()
