"""Print the files that are installed: every Python module and data file of the packages, one path a line.

meson.build reads this, so that no list has to follow each new file. The folder traces/samples/make holds scripts that
record the sample traces; they run from a checkout only.
"""

from pathlib import Path

PACKAGES = ("common", "traces", "capture", "replay", "analysis", "benchmarks", "cli")
SUFFIXES = {".py", ".toml", ".parquet", ".bt", ".css", ".js", ".j2"}

root = Path(__file__).parent
for package in PACKAGES:
    for path in sorted((root / package).rglob("*")):
        if path.suffix in SUFFIXES and "samples/make" not in path.as_posix() and not path.name.startswith("."):
            print(path.relative_to(root).as_posix())
