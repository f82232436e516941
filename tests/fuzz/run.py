"""Fuzz for a long time: the parsers in C with libFuzzer, the readers and the properties in Python with hypothesis.

    python tests/fuzz/run.py --seconds 3600               # each target an hour
    python tests/fuzz/run.py --seconds 600 plan python    # only these

An input that fails stays in fuzz-findings/, and the exit code is 1. Inputs that reach new code stay in
.stamps/fuzz-corpus/ for the next time.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).parents[2]
CORPUS = TREE / "tests/fuzz/corpus"
BUILD, NEW_INPUTS, FINDINGS = TREE / ".stamps/fuzz", TREE / ".stamps/fuzz-corpus", TREE / "fuzz-findings"
NATIVE = sorted(path.name for path in CORPUS.iterdir() if (TREE / f"tests/fuzz/native/{path.name}.c").exists())
# Tests in Python that are repeated with random seeds: the arguments of pytest.
PYTHON = {"python": ["tests/fuzz"], "properties": ["-m", "hypothesis", "tests/unit"],
          # Each wrong value in each place, of which `make test` has one for each place or kind.
          "documents": ["tests/unit/cli", "tests/unit/benchmarks/catalog/test_hostile_catalog.py",
                        "-k", "damaged or hostile"],
          "lengths": ["tests/unit/benchmarks/recipe/test_recipes_full_length.py"],
          # Each format, of which `make test` has one of each kind.
          "formats": ["tests/unit/traces/importers/test_bad_input.py"]}
TARGETS = [*NATIVE, *PYTHON]
MAX_MEMORY_MIB, MAX_INPUT_SECONDS = 2048, 60


def build() -> None:
    environment = {**os.environ, "CC": "clang", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", BUILD, TREE, "-Dlibfuzzer=true"], env=environment, check=True)
    subprocess.run(["ninja", "-C", BUILD, *(f"tests/fuzz/native/fuzz-{name}" for name in NATIVE)], env=environment,
                   check=True)


def fuzz_native(name: str, seconds: int) -> bool:
    """Returns whether an input failed."""
    inputs = NEW_INPUTS / name
    inputs.mkdir(parents=True, exist_ok=True)
    return subprocess.run([
        BUILD / f"tests/fuzz/native/fuzz-{name}", f"-max_total_time={seconds}", f"-artifact_prefix={FINDINGS}/{name}-",
        f"-rss_limit_mb={MAX_MEMORY_MIB}", f"-timeout={MAX_INPUT_SECONDS}", "-print_final_stats=1", inputs,
        CORPUS / name]).returncode != 0


def fuzz_python(name: str, seconds: int) -> bool:
    """Repeats the tests with other seeds. Returns whether one failed; its output has the input.

    One run with a seed ends before the time is looked at: about five minutes of `properties`.
    """
    end, seed = time.monotonic() + seconds, time.time_ns() % 2**32
    while time.monotonic() < end:
        run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "--timeout=0", "--hypothesis-profile=random",
                              f"--hypothesis-seed={seed}", *PYTHON[name]], cwd=TREE, capture_output=True, text=True)
        print(f"{name}: seed {seed}: {run.stdout.splitlines()[-1] if run.stdout else run.stderr}", flush=True)
        if run.returncode:
            (FINDINGS / f"{name}-{seed}.txt").write_text(run.stdout + run.stderr)
            return True
        seed += 1
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz parsers and properties for a long time.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS) + "; default: all")
    parser.add_argument("--seconds", type=int, default=3600, help="per target (default: 3600)")
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown target: {', '.join(sorted(unknown))}; targets: {', '.join(TARGETS)}")
    targets = options.targets or TARGETS
    FINDINGS.mkdir(exist_ok=True)
    if set(targets) & set(NATIVE):
        build()
    failed = [name for name in targets if (fuzz_python if name in PYTHON else fuzz_native)(name, options.seconds)]
    print(f"failed: {', '.join(failed)}; the inputs are in {FINDINGS}" if failed else "no input failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
