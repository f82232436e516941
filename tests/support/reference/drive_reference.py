"""Independent model of the simulated drive, written from docs/replay.md: a test oracle for plans of one lane.

Computes one I/O after the other in plain floats and integers, without dependencies, heat and jitter.
"""

import heapq
import math

READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES = range(5)
FUA, PREFLUSH = 8, 16


class Reference:
    def __init__(self, drive):
        self.drive = drive
        self.fill, self.random_bytes, self.mapped = 0.0, 0.0, set()
        self.granules = -(-drive.size_bytes // drive.granule_bytes)
        self.channels = [0] * int(drive["channels"])
        self.read_bus = self.write_bus = self.blocked = self.writes_done = 0
        self.heads, self.oldest = [-1] * 8, 0
        self.in_flight = []  # (completion, order, op)
        self.idle_since = 0

    def run(self, plan, depth):
        """(submit_ns, complete_ns) of every row of the plan."""
        times, now, outstanding = [], 0, []
        for row in range(len(plan["op"])):
            now = max(now, int(plan["due_ns"][row]), 0)
            while outstanding and outstanding[0] <= now:
                heapq.heappop(outstanding)
            if len(outstanding) == depth:
                now = heapq.heappop(outstanding)
            self.settle(now)
            done = self.submit(now, *(int(plan[name][row]) for name in ("op", "flags", "offset_bytes", "length_bytes")))
            heapq.heappush(self.in_flight, (done, row, int(plan["op"][row])))
            heapq.heappush(outstanding, done)
            times.append((now, done))
        return times

    def settle(self, now):
        while self.in_flight and self.in_flight[0][0] <= now:
            self.idle_since = heapq.heappop(self.in_flight)[0]

    def submit(self, now, op, flags, offset, length):
        of = self.drive
        if not self.in_flight:
            self.fill = max(0.0, self.fill - of["cache_drain"] * (now - self.idle_since) / 1e9)
        start = max(self.work_until(now), self.blocked)
        slowdown = of["read_slowdown"] if any(one[2] == WRITE for one in self.in_flight) else 1.0
        if op == READ:
            flash = self.channel(start, of["read_latency_ns"] * slowdown)
            done = self.read_bus = max(flash, self.read_bus) + ns(length * 1e9 / of["read_bandwidth"] * slowdown)
        elif op in (WRITE, WRITE_ZEROES):
            transfer = self.write(offset, length) if op == WRITE else 0.0
            if op == WRITE_ZEROES:
                self.mapped |= self.touched(offset, length)
            if flags & PREFLUSH:
                start = max(start, self.writes_done) + ns(of["flush_latency_ns"])
            flash = self.channel(start, of["write_latency_ns"])
            done = self.write_bus = max(flash, self.write_bus) + ns(transfer)
            done += ns(of["flush_latency_ns"]) if flags & FUA else 0
            self.writes_done = max(self.writes_done, done)
        elif op == DISCARD:
            self.discard(offset, length)
            done = start + ns(of["discard_latency_ns"] + of["discard_ns_per_gb"] * length / 1e9)
            self.blocked = done
        else:
            done = max(start, self.writes_done) + ns(of["flush_latency_ns"])
        return max(now, self.clock_of(done))

    def channel(self, start, latency):
        first = self.channels.index(min(self.channels))
        self.channels[first] = max(start, self.channels[first]) + ns(latency)
        return self.channels[first]

    def write(self, offset, length):
        of = self.drive
        sequential = offset in self.heads
        if sequential:
            self.heads[self.heads.index(offset)] = offset + length
        else:
            self.heads[self.oldest] = offset + length
            self.oldest = (self.oldest + 1) % 8
        cached = min(max(0.0, of["cache_bytes"] - self.fill), float(length))
        speed = of["write_bandwidth"]
        if not sequential:
            share = len(self.mapped) / self.granules * (1 - math.exp(-self.random_bytes
                                                                     / of["random_write_decline_bytes"]))
            speed -= (speed - of["random_write_bandwidth"]) * share
            self.random_bytes += length
        self.fill += cached
        self.mapped |= self.touched(offset, length)
        return (cached * 1e9 / of["cache_bandwidth"] if cached else 0.0) + (length - cached) * 1e9 / speed

    def touched(self, offset, length):
        return set(range(offset // self.drive.granule_bytes, (offset + length - 1) // self.drive.granule_bytes + 1))

    def discard(self, offset, length):
        size, end = self.drive.granule_bytes, offset + length
        behind = self.granules if end >= self.drive.size_bytes else end // size
        before = len(self.mapped)
        self.mapped -= set(range(-(-offset // size), behind))
        if len(self.mapped) < before:
            self.fill *= len(self.mapped) / before
            self.random_bytes *= len(self.mapped) / before

    def stalls(self):
        every, stall = int(self.drive["stall_every_ns"]), int(self.drive["stall_for_ns"])
        at = every
        while every:
            yield at, at + stall
            at += every

    def work_until(self, now):
        lost = 0
        for begin, end in self.stalls():
            if begin > now:
                break
            lost += min(now, end) - begin
        return now - lost

    def clock_of(self, work):
        """The first time at which it has worked so long."""
        at = work
        for begin, end in self.stalls():
            if begin >= at:
                break
            at += end - begin
        return at


def ns(value):
    return math.floor(value + 0.5)
