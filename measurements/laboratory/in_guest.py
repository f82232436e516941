"""The guest's part of the laboratory: captures programs on each drive, replays each trace on the others of its pairs.

Arguments: a JSON document with the programs, pairs and replays. Prints lines of JSON, one for each result. One capture
has all programs, one after the other, because to start a capture takes longer than most programs. A direct read of a
block that only it reads stands before and after each of them, so that the I/Os of each are known in every replay.

No file of the host may be read between the first and the last I/O of a program, because the guest's clock skips that
time: the programs have run once before, and what they start lies in the guest's memory.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests/support/services")]

from blkreel.traces.format.reader import open_trace  # noqa: E402
from blkreel.traces.format.schema import FLAGS  # noqa: E402
from measurements.contention import writer  # noqa: E402
from measurements.lab import SERVER_FIRST, read_figures  # noqa: E402
from measurements.laboratory.drive_pairs import PAIRS, NullDrive  # noqa: E402
from measurements.laboratory.images import DATA  # noqa: E402
from measurements.laboratory.programs import PROGRAMS  # noqa: E402
from measurements.replay.dependent import own_rows  # noqa: E402
from measurements.replay.drive_pair import emulated, mounted  # noqa: E402
from tests.vm.guest.drives import make_null_drive  # noqa: E402
from tests.vm.guest.forked import Forked, load_command  # noqa: E402

WORK = Path("/run/tmp/laboratory")
BLOCK_BYTES = 4096
WRITTEN_BYTES = 64 << 20  # behind the file system and the marks, for the writes beside
LEAD_S = 4


def main():
    job = json.loads(sys.argv[1])
    WORK.mkdir()
    os.chdir(WORK)
    # Whether a program gets huge pages would depend on the programs and captures before it. What asks for them are
    # the writes beside, of which the kernel would else make several.
    Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("madvise")
    if not CHECKOUT.is_relative_to("/tmp"):  # else the database programs fail, whose sockets are there
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp"], check=True)
    step("import the command")
    load_command()
    by_name = {program.name: program for program in PROGRAMS}
    laboratory = Laboratory([by_name[name] for name in job["programs"]], job["beside_bytes_s"])
    laboratory.warm_up()
    for result in laboratory.results([PAIRS[name] for name in job["pairs"]], job["replays"]):
        print(json.dumps(result), flush=True)
    if job["keep"]:
        shutil.copytree(WORK, "/run/job/kept")


class Laboratory:
    """Programs whose files lie on the second image, and drives with a copy of it.

    beside_bytes_s: rate of the writes beside which each program and each replay run a second time, or 0 for none.
    """

    def __init__(self, programs, beside_bytes_s):
        self.programs, self.beside_bytes_s = programs, beside_bytes_s
        disks = sorted(Path("/sys/block").glob("pmem*"),
                       key=lambda disk: int((disk / "device/resource").read_text(), 16))
        self.contents = Path("/dev", disks[1].name)
        self.size_bytes = int((disks[1] / "size").read_text()) * 512
        self.drive_bytes = self.size_bytes + (WRITTEN_BYTES if beside_bytes_s else 0)

    def warm_up(self):
        """What a program, a capture or a replay reads from the host is then in memory."""
        trace = WORK / "warm-up.parquet"
        with self.drive(NullDrive(100_000)) as path:
            self.fill(path)
            with mounted(path) as place:
                step("warm-up")
                subprocess.run(self.command(path, place), stdout=subprocess.DEVNULL)
                blkreel("capture", path, "-o", trace, "--", "dd", "if=/dev/zero", f"of={place}/file", "bs=64k",
                        "count=50", "conv=fsync")
            self.issue(trace, path, WORK / "warm-up", "dependent")

    def results(self, pairs, replays):
        """Yields a dictionary for each replay and program, alone and beside writes."""
        for pair in pairs:
            for direction, source, target in pair.directions():
                # null_blk lets no I/O wait for another, and on a fast drive the writer mostly takes processor time.
                has_contention = self.beside_bytes_s and target.is_emulated and target == pair.slow
                for beside in (False, True) if has_contention else (False,):
                    captured, actual = self.figures(self.trace(source)), self.figures(self.trace(target, beside))
                    # To start the server of an emulated drive takes the guest four seconds.
                    with self.drive(target) if set(replays) != {"simulated"} else nullcontext("") as path:
                        for name in [name for name in replays if not (beside and name == "fitted")]:
                            run = WORK / f"{name}, {source.file_name} to {target.file_name}{', beside' * beside}"
                            on = target.description(self.drive_bytes) if name == "simulated" else path
                            try:
                                predicted = list(getattr(self, f"replay_{name}")(self.trace(source), on, run, beside))
                            except (RuntimeError, IndexError) as error:  # IndexError: a mark was not replayed
                                step(f"failed: {run.name}: {error}")
                                continue
                            for number, program in enumerate(self.programs):
                                yield {"program": program.name, "pair": pair.name, "direction": direction,
                                       "beside": beside, "replay": name, "captured": captured[number],
                                       "actual": actual[number], "predicted": predicted[number],
                                       "program_failed": (WORK / f"failed-{number}").exists()}

    def trace(self, drive, beside=False):
        """The trace of the programs on the drive, captured when it is needed first."""
        path = WORK / f"{drive.file_name}{', beside' * beside}.parquet"
        if not path.exists():
            with self.drive(drive) as device:
                self.fill(device)
                with mounted(device) as place, self.writes(device) if beside else nullcontext():
                    command = self.command(device, place, path.stem if drive.is_emulated else None)
                    # 3: late answers of an emulated drive.
                    blkreel("capture", device, "-o", path, "--", *command,
                            allowed=(0, 3) if drive.is_emulated else (0,))
        return path

    @contextmanager
    def drive(self, drive):
        """Yields the path of an empty drive."""
        if drive.is_emulated:
            # While files of the host are read, the guest's clock jumps: no server would answer in time.
            with emulated(drive.description(), "--size", str(self.drive_bytes), "--timeout", "1h",
                          before=SERVER_FIRST) as path:
                yield path
            return
        path, directory = make_null_drive("laboratory", **drive.attributes(self.drive_bytes))
        try:
            yield path
        finally:
            directory.rmdir()

    @contextmanager
    def writes(self, device):
        process = subprocess.Popen([sys.executable, writer.__file__, device, str(self.beside_bytes_s),
                                    str(self.size_bytes)], stdout=subprocess.DEVNULL)
        try:
            time.sleep(LEAD_S)
            yield
        finally:
            process.kill()
            process.wait()

    def fill(self, path):
        """Leaves nothing in the page cache."""
        step("fill")
        subprocess.run(["dd", f"if={self.contents}", f"of={path}", "bs=1M", "iflag=direct", "oflag=direct",
                        "conv=sparse", "status=none"], check=True)

    def command(self, drive, place, server_times=None):
        """Runs the programs, between direct reads of the marks, the last blocks of the drive.

        server_times: name of the trace of an emulated drive, whose server_file() get its times before and after each.
        """
        script = []
        server = server_times and next(comm.parent for comm in Path("/proc").glob("[0-9]*/comm")
                                       if comm.read_text() == "blkreel-emulate\n")
        for number, program in enumerate(self.programs):
            words = map(str, program.command(place / (str(number) if program.fill else DATA)))
            before, after = (
                f"dd if={drive} of=/dev/null bs={BLOCK_BYTES} count=1 skip={block} iflag=direct status=none"
                for block in self.marks()[2 * number:2 * number + 2])
            run = f"{shlex.join(words)} || touch {WORK}/failed-{number}"
            if server_times:
                count_before, count_after = (
                    f"cat {server}/task/*/schedstat >'{server_file(server_times, mark)}'"
                    for mark in (2 * number, 2 * number + 1))
                before, after = f"{count_before}\n{before}", f"{after}\n{count_after}"
            # Written data does not reach the drive during the next program.
            script += ["sync", before, run, after]
        return ["sh", "-c", "\n".join(script)]

    def marks(self):
        """Numbers of the blocks that are read before and after each program, in this order."""
        last = self.size_bytes // BLOCK_BYTES - 1
        return [last - mark for mark in range(2 * len(self.programs))]

    def figures(self, trace, records=None):
        """Of each program: load_s, from its first I/O to the end of its last, and reads, as read_figures(); in the
        records of a replay if given. Of the program itself also server_s, what the emulated drive computed."""
        offsets = open_trace(trace).table(["offset_bytes"])["offset_bytes"].to_numpy()
        mark_rows = [int(np.flatnonzero(offsets == block * BLOCK_BYTES)[0])
                     for block in self.marks()]
        read = records or open_trace(trace)
        columns = read.table(["op", "submit_ns", "latency_ns", "flags"] + ["source_row"] * bool(records)).to_pandas()
        columns = columns[(columns["flags"] & FLAGS["role_background"]) == 0]
        op, submit_ns, latency_ns = (columns[name].to_numpy() for name in ("op", "submit_ns", "latency_ns"))
        row = columns["source_row"].to_numpy() if records else np.arange(len(submit_ns))
        own = (row >= 0) & own_rows(trace)[row]
        result = []
        for number, program in enumerate(self.programs):
            first, last = mark_rows[2 * number:2 * number + 2]
            part = own & (row > first) & (row < last)
            if not part.any():
                raise SystemExit(f"{program.name} had no I/O: does it run on the guest's processor?")
            end_ns = submit_ns[part] + np.maximum(latency_ns[part], 0)
            result.append({"load_s": float(end_ns.max() - submit_ns[part].min()) / 1e9,
                           "reads": read_figures(op[part], submit_ns[part], latency_ns[part])})
            if not records:
                result[-1]["server_s"] = server_s(trace.stem, number)
        return result

    def replay_dependent(self, trace, drive, run, beside):
        return self.replay(trace, drive, run, "dependent", beside)

    def replay_simulated(self, trace, drive, run, beside):
        return self.replay(trace, drive, run, "dependent", beside)

    def replay_original(self, trace, drive, run, beside):
        return self.replay(trace, drive, run, "original", beside)

    def replay_fitted(self, trace, drive, directory, _beside):
        """Each program's part of the trace by itself. Yields the paths of the part and of its run below WORK, which
        fitted.py reads outside the guest."""
        directory.mkdir()
        rows = open_trace(trace).table(["offset_bytes", "submit_ns"]).to_pandas()
        begins_ns = [int(rows.submit_ns[rows.offset_bytes == block * BLOCK_BYTES].iloc[0]) for block in self.marks()]
        for number in range(len(self.programs)):
            part, run = (directory.relative_to(WORK) / f"{name} {number}{ending}"
                         for name, ending in (("part", ".parquet"), ("run", "")))
            blkreel("slice", trace, "-o", part, "--from", f"{begins_ns[2 * number] + 1}ns",
                    "--to", f"{begins_ns[2 * number + 1]}ns", allowed=(0, 3))
            self.issue(part, drive, run, "dependent")
            yield {"part": str(part), "run": str(run)}

    def replay(self, trace, drive, run, pace, beside=False):
        self.issue(trace, drive, run, pace, beside)
        records = open_trace(run)
        limits = [reason["code"] for reason in records.metadata["run"]["verdict"]["reasons"]]
        return [{**figures, "limits": limits} for figures in self.figures(trace, records)]

    def issue(self, trace, drive, run, pace, beside=False):
        confirmed = [] if drive.startswith("nil:") else ["--destroy", f"{Path(drive).name}:{self.drive_bytes}"]
        background = ["--background", f"writes={self.beside_bytes_s}B/s", "--background-lead", f"{LEAD_S}s"]
        # 3: limits of the trace or delays of this machine, which the figures show.
        blkreel("replay", trace, "--on", drive, "-o", run, "--pace", pace, *confirmed, *(background if beside else ()),
                allowed=(0, 3))

    def replay_fio(self, trace, drive, directory, _beside):
        directory.mkdir()
        log, capture = directory / "trace.iolog", directory / "seen.parquet"
        blkreel("export", trace, "--format", "iolog3", "-o", log, allowed=(0, 3))
        blkreel("capture", drive, "-o", capture, "--", "fio", "--name=replay", f"--read_iolog={log}",
                f"--replay_redirect={drive}", "--ioengine=io_uring", "--direct=1", "--iodepth=64", "--thread",
                f"--output={directory}/output")
        return self.figures(capture)


def server_file(trace_name, mark):
    """Times of the threads of the emulated drive's server at this mark, each the first word of a line, in ns."""
    return WORK / f"{trace_name}, server {mark}"


def server_s(trace_name, number):
    """What the server of the emulated drive computed during this program; 0 without one."""
    before, after = (server_file(trace_name, 2 * number + end) for end in (0, 1))
    if not before.exists():
        return 0
    return (sum_ns(after) - sum_ns(before)) / 1e9


def sum_ns(path):
    return sum(int(line.split()[0]) for line in path.read_text().splitlines())


def step(*words):
    print(*words, flush=True)


def blkreel(*words, allowed=(0,)):
    step("blkreel", *words[:4])
    environment = {**os.environ, "BLKREEL_STATE_DIR": str(WORK / "state"), "BLKREEL_CACHE_DIR": str(WORK / "cache")}
    out, err = WORK / "out", WORK / "err"
    process = Forked(words, out, err, None, environment)
    # No polling: it would take processor time from the program.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if process.wait() not in allowed:
        raise RuntimeError(f"blkreel {words[0]} exited with {process.returncode}: {process.output()[1].strip()[-800:]}")
    out.unlink()
    err.unlink()


if __name__ == "__main__":
    main()
