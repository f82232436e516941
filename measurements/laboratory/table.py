"""Compares the load time that a replay predicts with that of the program, in a guest whose clock counts instructions.

Each program of programs.py is captured on both drives of a pair, and the trace of each drive is replayed on the other
one. The drives are null_blk with completions by timer, or emulated. The guest's clock depends neither on the speed nor
on the load of this machine, so each measurement is made once. Needs what `make test-vm` needs, and root for the
contents of some programs. Programs that are not installed are skipped.
"""

import argparse
import json
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(CHECKOUT / "tests/vm")]

from errors import CannotRun, RigError  # noqa: E402
from initramfs import build  # noqa: E402
from kernel import fetch_package, find_package  # noqa: E402
from qemu import Machine, run_guest  # noqa: E402
from run import check_requirements  # noqa: E402

from measurements.lab import lacking  # noqa: E402
from measurements.laboratory.drive_pairs import PAIRS  # noqa: E402
from measurements.laboratory.fitted import predict_held_out  # noqa: E402
from measurements.laboratory.images import contents_image, system_image  # noqa: E402
from measurements.laboratory.programs import PROGRAMS  # noqa: E402

KERNELS = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
REPLAYS = ("dependent", "simulated", "fitted", "original", "fio")
# Those at dependent pace: the others do not wait as the program does. simulated: on the simulated drive of the same
# description, which the guest's own work does not delay. fitted: as `blkreel predict`, on one that is fitted to
# replays of the other programs' traces on the drive.
AS_THE_PROGRAM = ("dependent", "simulated", "fitted")
# Guests with Linux 6.12 crash at times under emulation.
ATTEMPTS = 3
# QEMU 7.2 ends its sorting with a segmentation fault.
NUMPY_WITHOUT_AVX = ("env", "NPY_DISABLE_CPU_FEATURES=X86_V3")
TIMEOUT_S = 4 * 3600
SILENT_S = 1800


def main():
    options = parse()
    programs = [program for program in PROGRAMS if available(program, options.only)]
    if not programs:
        raise SystemExit("lab: no such program")
    try:
        check_requirements()
        options.cache.mkdir(parents=True, exist_ok=True)
        rows, complete = run(options, programs)
    except (CannotRun, RigError) as error:
        raise SystemExit(f"lab: {error}") from None
    if options.json:
        options.json.write_text(json.dumps({"kernel": options.kernel, "results": rows}, indent=1) + "\n")
    print_table(rows)
    return not complete or any(row["program_failed"] for row in rows)


def parse():
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--only", nargs="+", help="only programs with one of these texts in their name")
    result.add_argument("--pairs", nargs="+", choices=PAIRS,
                        help="pairs of drives (default: of null_blk; with --beside, of an emulated drive)")
    result.add_argument("--replays", nargs="+", choices=REPLAYS, default=list(REPLAYS),
                        help="(default: all); fitted needs two programs with 100 reads")
    result.add_argument("--beside", type=float, metavar="MB/s", default=0,
                        help="measure programs and replays on the slow drive also beside direct writes of 1 MiB")
    result.add_argument("--kernel", choices=KERNELS, default="6.1", help="of the guest (default: 6.1)")
    result.add_argument("--instruction-ns", type=int, choices=(1, 2, 4), default=2,
                        help="time that the guest takes for an instruction (default: 2)")
    result.add_argument("--json", type=Path, help="also write the results to this file")
    result.add_argument("--keep", type=Path, help="new directory for the traces and runs")
    result.add_argument("--verbose", action="store_true", help="print the steps of the guest")
    result.add_argument("--cache", type=Path, default=CHECKOUT / ".vm",
                        help="directory for kernels and images (default: .vm in the checkout)")
    options = result.parse_args()
    if options.keep and options.keep.exists():
        result.error(f"--keep {options.keep} exists; give a new directory")
    has_contention = bool(options.beside)
    options.pairs = options.pairs or [name for name, pair in PAIRS.items() if pair.is_emulated == has_contention]
    if has_contention and not any(PAIRS[name].is_emulated for name in options.pairs):
        result.error(f"--beside needs a pair with an emulated drive, such as --pairs {next(reversed(PAIRS))}: "
                     "on null_blk no I/O waits for another")
    return options


def available(program, texts):
    if texts and not any(text in program.name for text in texts):
        return False
    reasons = lacking(*program.needs)
    if reasons:
        print(f"{program.name}: skipped: {'; '.join(reasons)}", flush=True)
    return not reasons


def run(options, programs):
    """The dictionaries of in_guest.py, and whether they are all there."""
    boot = build(fetch_package(find_package(KERNELS[options.kernel]), options.cache))
    system = system_image([package for program in programs for _, package in program.needs], options.cache)
    with tempfile.TemporaryDirectory(dir=options.cache, prefix="guest-") as directory:
        job = Path(directory)
        contents = job / "contents"
        contents_image(programs, contents)
        # A drive has its data in the guest's memory, an emulated one all that it has room for.
        machine = Machine(memory_mib=3072 + (contents.stat().st_size >> 20), processors=1,
                          instruction_ns=options.instruction_ns, images=[system, contents],
                          has_avx=any(program.needs_avx for program in programs))
        words = {"programs": [program.name for program in programs], "pairs": options.pairs,
                 "replays": options.replays, "beside_bytes_s": int(options.beside * 1e6),
                 "keep": bool(options.keep) or "fitted" in options.replays}
        (job / "command").write_text("exec " + shlex.join(
            [*(NUMPY_WITHOUT_AVX if machine.has_avx else ()), sys.executable,
             str(Path(__file__).with_name("in_guest.py")), json.dumps(words)]) + "\n")
        rows, complete = boot_guest(boot, job, machine, options.verbose)
        if options.keep and (job / "kept").exists():
            shutil.copytree(job / "kept", options.keep)
        return predict_held_out(rows, job / "kept"), complete


def boot_guest(boot, job, machine, verbose):
    for _ in range(ATTEMPTS):
        printed: list[str] = []
        began = time.monotonic()

        def receive(text, printed=printed, began=began):
            printed.append(text)
            if verbose:
                print(f"{time.monotonic() - began:.0f} s: {text.strip()}", file=sys.stderr, flush=True)

        outcome = run_guest(*boot, job, TIMEOUT_S, receive, machine, SILENT_S)
        lines = "".join(printed).splitlines()
        if not outcome.crashed:
            break
    failed = [line for line in lines if line.startswith("failed: ")]
    print(*failed, sep="\n", end="\n" if failed else "", file=sys.stderr)
    if outcome.exit_code != 0:
        print("lab: the guest ended early:", *lines[-30:], *outcome.trouble, outcome.why, sep="\n", file=sys.stderr)
    return [json.loads(line) for line in lines if line.startswith("{")], outcome.exit_code == 0 and not failed


def print_table(rows):
    replays = list(dict.fromkeys(row["replay"] for row in rows))
    width = max((len(row["program"]) for row in rows), default=0)
    cases: dict[tuple, dict] = {}
    for row in rows:
        cases.setdefault(case_of(row), {})[row["replay"]] = row
    has_server = any(row["actual"]["server_s"] for row in rows)
    print(f"{'':{width}} {'pair of drives':22} {'direction':9} {'writes':6} {'captured, s':>11} {'program, s':>11}",
          *["server, s"] * has_server, *(f"{name + ', s':>13} {'error':>8}" for name in replays))
    for (program, pair, direction, beside), by_replay in sorted(cases.items()):
        first = next(iter(by_replay.values()))
        cells = [f"{by_replay[name]['predicted']['load_s']:>13.4f} {relative_error(by_replay[name]):>+8.1%}"
                 if name in by_replay else " " * 22 for name in replays]
        server = [f"{first['actual']['server_s']:>9.4f}"] * has_server
        print(f"{program:<{width}} {pair:22} {direction:9} {'beside' * beside:6} {first['captured']['load_s']:>11.4f} "
              f"{first['actual']['load_s']:>11.4f}", *server, *cells,
              " the program failed" if first["program_failed"] else "")
    print_errors("error", {name: [relative_error(row) for row in rows if row["replay"] == name] for name in replays})
    if any(row["beside"] for row in rows):
        print_slowdowns(cases, width, replays)
    print_reads(rows, width)


def print_errors(what, by_replay):
    for name, errors in by_replay.items():
        if errors:
            sizes = [abs(error) for error in errors]
            print(f"{name}: {what} median {statistics.median(sizes):.1%}, largest {max(sizes):.1%}")


def print_slowdowns(cases, width, replays):
    print(f"\n{'slowdown by the writes':{width}} {'pair of drives':22} {'direction':9} {'program':>8}",
          *(f"{name:>10} {'error':>8}" for name in replays))
    errors: dict[str, list] = {name: [] for name in replays}
    for (program, pair, direction, beside), by_replay in sorted(cases.items()):
        if not beside:
            continue
        alone, cells = cases[program, pair, direction, False], []
        for name in replays:
            if name not in by_replay or name not in alone:
                cells.append(" " * 19)
                continue
            actual, predicted = (by_replay[name][key]["load_s"] / alone[name][key]["load_s"]
                                 for key in ("actual", "predicted"))
            errors[name].append(predicted / actual - 1)
            cells.append(f"{predicted:>10.2f} {errors[name][-1]:>+8.1%}")
        print(f"{program:<{width}} {pair:22} {direction:9} {actual:>8.2f}", *cells)
    print_errors("error of the slowdown", errors)


def case_of(row):
    return row["program"], row["pair"], row["direction"], row["beside"]


def print_reads(rows, width):
    print(f"\n{'reads: program, replay':{width}} {'pair of drives':22} {'direction':9} {'writes':6} {'replay':9} "
          f"{'p50, us':>22} {'error':>8} {'p99, us':>22} {'error':>8} {'mean depth':>14} {'error':>8}  limits")
    for row in sorted(rows, key=case_of):
        actual, predicted = row["actual"]["reads"], row["predicted"]["reads"]
        if row["replay"] not in AS_THE_PROGRAM or not actual or not predicted:
            continue
        cells = [f"{f'{actual[key]:,.{digits}f}, {predicted[key]:,.{digits}f}':>{columns}} "
                 f"{predicted[key] / actual[key] - 1:>+8.1%}" if key in predicted else " " * (columns + 9)
                 for key, columns, digits in (("p50_us", 22, 0), ("p99_us", 22, 0), ("mean_depth", 14, 2))]
        print(f"{row['program']:<{width}} {row['pair']:22} {row['direction']:9} {'beside' * row['beside']:6} "
              f"{row['replay']:9}", *cells, "", *row["predicted"].get("limits", []))


def relative_error(row):
    return row["predicted"]["load_s"] / row["actual"]["load_s"] - 1


if __name__ == "__main__":
    sys.exit(main())
