"""Independent model of the simulated drive, written from docs/replay.md: a test oracle for plans of one lane.

Computes one I/O after the other in plain floats and integers, without dependencies, heat and jitter.
"""

import heapq
import math

READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES = range(5)
VERIFY, COMPARE = 11, 12
FUA, PREFLUSH = 8, 16


class Reference:
    def __init__(self, drive):
        self.drive = drive
        self.fill, self.random_bytes, self.mapped = 0.0, 0.0, set()
        self.granules = -(-drive.size_bytes // drive.granule_bytes)
        self.channels = [0] * int(drive["channels"])
        self.read_bus = self.write_bus = self.blocked = self.writes_done = self.link = self.ios_done = 0
        self.commands = [0] * int(drive["commands"])
        self.programs = [(0, 1)] * len(self.channels)  # (end of the last, its length) of each die
        self.due, self.next_die = {"direct": 0.0, "cached": 0.0}, 0
        self.heads, self.oldest = [-1] * 8, 0
        self.in_flight = []  # (completion, order, op)
        self.cache_at = 0
        self.paid = {"iops": 0.0, "rate": 0.0}  # time up to which the tokens are spent

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
            self.drain(self.in_flight[0][0])
            heapq.heappop(self.in_flight)

    def submit(self, now, op, flags, offset, length):
        self.drain(now)
        start = max(self.work_until(now), self.blocked)
        if op in (READ, WRITE):
            start = self.pay("iops", start, 1, self.drive["iops_limit"], self.drive["iops_credit"])
            start = self.pay("rate", start, length, self.drive["rate_limit"], self.drive["rate_credit_bytes"])
        command = self.commands.index(min(self.commands)) if self.commands else None
        if command is not None:
            start = max(start, self.commands[command])
        done = self.execute(start, op, flags, offset, length)
        if command is not None:
            self.commands[command] = done
        self.ios_done = max(self.ios_done, done)
        return max(now, self.clock_of(done))

    def execute(self, start, op, flags, offset, length):
        of = self.drive
        slowdown = of["read_slowdown"] if any(one[2] == WRITE for one in self.in_flight) else 1.0
        if op in (READ, VERIFY, COMPARE):
            has_link = of["link_bandwidth"] and op != VERIFY
            flash = self.channel(self.after_program(start, offset, length), of["read_latency_ns"] * slowdown)
            begin = max(flash, self.read_bus)
            if has_link:
                begin = self.begin_on_link(begin, length)
            self.read_bus = begin + ns(length * 1e9 / of["read_bandwidth"] * slowdown)
            done = max(self.read_bus, self.link) if has_link else self.read_bus
        elif op in (WRITE, WRITE_ZEROES):
            transfer, cached, direct, speed = self.write(offset, length) if op == WRITE else (0.0, 0.0, 0.0, 1.0)
            if op == WRITE_ZEROES:
                self.mapped |= self.touched(offset, length)
            if flags & PREFLUSH:
                start = self.flush(start)
            begin = self.begin_on_link(start, int(cached + direct))
            flash = self.channel(begin, of["write_latency_ns"])
            self.write_bus = max(flash, self.write_bus) + ns(transfer)
            done = max(self.write_bus, self.link) if of["link_bandwidth"] else self.write_bus
            self.program(done, cached, of["cache_bandwidth"], "cached", of["cache_program_ns"])
            self.program(done, direct, speed, "direct", of["program_ns"])
            if flags & FUA:
                done += ns(of["flush_latency_ns"])
                if of["flush_blocks"]:
                    self.blocked = max(self.blocked, done)
            self.writes_done = max(self.writes_done, done)
        elif op == DISCARD:
            self.discard(offset, length)
            done = start + ns(of["discard_latency_ns"] + of["discard_ns_per_gb"] * length / 1e9)
            self.blocked = done
        else:
            done = self.flush(start)
        return done

    def pay(self, bucket, start, tokens, rate, credit):
        if rate:
            start = max(start, math.ceil(self.paid[bucket] - credit * 1e9 / rate))
            self.paid[bucket] = max(self.paid[bucket], float(start)) + tokens * 1e9 / rate
        return start

    def flush(self, start):
        alone = bool(self.drive["flush_blocks"])
        done = max(start, self.ios_done if alone else self.writes_done) + ns(self.drive["flush_latency_ns"])
        if alone:
            self.blocked = max(self.blocked, done)
        return done

    def begin_on_link(self, start, length):
        if self.drive["link_bandwidth"]:
            start = max(start, self.link)
            self.link = start + ns(length * 1e9 / self.drive["link_bandwidth"])
        return start

    def drain(self, now):
        of = self.drive
        rate = of["cache_fold"] if self.in_flight else of["cache_drain"]
        drained = min(self.fill, rate * (now - self.cache_at) / 1e9)
        self.fill -= drained
        self.cache_at = now
        if self.in_flight and drained:
            self.program(self.work_until(now), drained, of["write_bandwidth"], "direct", of["program_ns"])

    def program(self, at, length, bandwidth, kind, program_ns):
        if not program_ns:
            return
        self.due[kind] += length * 1e9 * len(self.channels) / (bandwidth * program_ns)
        count = int(self.due[kind])
        self.due[kind] -= count
        per_die, dies = [0] * len(self.channels), len(self.channels)
        for number in range(count):
            per_die[(self.next_die + number) % dies] += 1
        self.next_die = (self.next_die + count) % dies
        self.programs = [(max(at, end) + programs * ns(program_ns), ns(program_ns)) if programs else (end, before)
                         for (end, before), programs in zip(self.programs, per_die, strict=True)]

    def after_program(self, start, offset, length):
        stripes = range(offset // 16384, (offset + length - 1) // 16384 + 1)
        waits = [(end - start) % one for end, one in (self.programs[stripe % len(self.programs)] for stripe in stripes)
                 if end > start]
        return start + max(waits, default=0)

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
        took = (cached * 1e9 / of["cache_bandwidth"] if cached else 0.0) + (length - cached) * 1e9 / speed
        return took, cached, length - cached, speed

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
