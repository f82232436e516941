"""Print the files that are installed: every Python module and data file of the packages, one path a line.

meson.build reads this, so that no list has to follow each new file.
"""

from pathlib import Path

PACKAGES = ("common", "traces", "capture", "replay", "analysis", "benchmarks", "cli")
SUFFIXES = {".py", ".toml", ".parquet", ".bt", ".css", ".js", ".j2"}

root = Path(__file__).parent
for package in PACKAGES:
    for path in sorted((root / package).rglob("*")):
        if path.suffix in SUFFIXES and not path.name.startswith("."):
            print(path.relative_to(root).as_posix())
