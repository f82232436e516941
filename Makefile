# blkreel: build, test, demo. Each target installs what it needs first.
#   make demo     from a real application to a comparison report, on scratch drives
#   make test     all tests
#   make test-vm  tests on an NVMe drive, device mapper and others, in a guest under QEMU
#   make samples  record the traces that ship anew
#   make bench    measurements beside fio, btreplay, blktrace, perf and bpftrace
#   make          the command alone, at .venv/bin/blkreel

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := .stamps
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# What the build needs, what the demo runs, and what the tests look through.
APT_BUILD := gcc make pkg-config python3-venv python3-dev clang libbpf-dev libelf-dev zlib1g-dev liburing-dev bpftool
APT_DEMO  := aria2 mktorrent opentracker e2fsprogs util-linux
APT_SAMPLES := aria2 mktorrent opentracker e2fsprogs util-linux mmdebstrap xvfb imagemagick
APT_TEST  := fio blktrace chromium fdisk zstd bpftrace dosfstools bzip2 sqlite3
APT_VM    := qemu-system-x86 busybox-static cpio kmod fio blktrace nvme-cli dmsetup mdadm fdisk smartmontools
APT_BENCH := fio blktrace linux-perf bpftrace bzip2 git sqlite3 xz-utils

SOURCES := $(shell git ls-files -co --exclude-standard -- traces capture replay analysis cli tests/native \
             meson.build pyproject.toml package.py.in 2>/dev/null | grep -v '^traces/samples/make/')

.PHONY: all install test test-vm demo samples bench lint clean
all: install

install: $(STAMPS)/install

# Says nothing where all packages are there. The log is shown only where it went wrong.
$(STAMPS)/apt-%: Makefile | $(STAMPS)
	@missing=$$(for package in $(APT_$(shell echo $* | tr a-z A-Z)); do \
	  dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "no apt-get here; install what these Debian packages hold, then: touch $@"; echo $$missing; exit 1; fi; \
	echo installing $$missing; \
	{ $(SUDO) apt-get update && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y --no-install-recommends $$missing; } >$(STAMPS)/apt.log 2>&1 || \
	{ cat $(STAMPS)/apt.log >&2; echo "apt-get failed, see above; then run the same make again" >&2; exit 1; }
	@touch $@

$(STAMPS):
	@mkdir -p $@

$(STAMPS)/venv: constraints.txt pyproject.toml Makefile | $(STAMPS) $(STAMPS)/apt-build
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Debian 12's own pip cannot pass settings to the build.
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=23.1'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  meson-python meson ninja altair click fsspec jinja2 numpy pandas pyarrow rich scipy vl-convert-python
	@touch $@

$(STAMPS)/venv-dev: $(STAMPS)/venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  aiohttp distributed duckdb hypothesis ipykernel nbclient nbformat playwright pytest pytest-timeout pytest-xdist ruff
	@touch $@

$(STAMPS)/install: $(STAMPS)/venv $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --force-reinstall -Cbuild-dir=build .
	@touch $@

# Those that use drives and watch the kernel take turns; the others go two at a time.
test: $(STAMPS)/install $(STAMPS)/venv-dev $(STAMPS)/apt-demo $(STAMPS)/apt-test lint
	PATH="$(abspath $(BIN)):$$PATH" meson test -C build --print-errorlogs
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),tests/unit tests/browser -n 2 --dist loadfile)
	$(if $(PYTEST_ARGS),,$(BIN)/python -m pytest --ignore=tests/unit --ignore=tests/browser)

# VM_ARGS is for the rig and for pytest, as in VM_ARGS="-k flush" or VM_ARGS=--shell. A machine that cannot install QEMU
# is told so by the rig, which skips. Its own test comes last, when there is a kernel to boot.
test-vm: $(STAMPS)/install $(STAMPS)/venv-dev
	@$(MAKE) --no-print-directory $(STAMPS)/apt-vm || true
	$(BIN)/python tests/vm/run.py $(VM_ARGS)
	$(if $(VM_ARGS),,BLKREEL_TEST_RIG=1 $(BIN)/python -m pytest -q tests/vm/test_rig.py)

lint: $(STAMPS)/venv-dev
	$(BIN)/ruff check .

# 3 is "done, but not trustworthy": the demo has said of which step and why, and its report stands.
demo: $(STAMPS)/install $(STAMPS)/apt-demo
	$(SUDO) $(abspath $(BIN))/blkreel demo -o demo-out $(DEMO_ARGS) || [ $$? -eq 3 ]

# The traces that ship, one or all: make samples SAMPLES=compile. About ten minutes, 6 GiB of memory, and as much on
# the disk for the Debian systems that they run in (/var/tmp/blkreel-roots, kept for the next time).
SAMPLES := game-load download game-download app-start package-install compile
samples: $(STAMPS)/install $(STAMPS)/apt-samples
	@for sample in $(SAMPLES); do \
	  $(SUDO) $(abspath $(BIN))/python traces/samples/make/$$sample.py || exit 1; done
	$(BIN)/python traces/samples/make/describe.py

# What blkreel costs and how exact it is, beside its peers; docs/measurements.md has the tables. Some minutes.
bench: $(STAMPS)/install $(STAMPS)/venv-dev $(STAMPS)/apt-bench
	$(SUDO) $(abspath $(BIN))/python bench/capture_peers.py
	$(SUDO) $(abspath $(BIN))/python bench/capture_synthetic.py
	$(SUDO) $(abspath $(BIN))/python bench/replay_pacing.py
	$(SUDO) $(abspath $(BIN))/python bench/telemetry_cost.py
	$(SUDO) $(abspath $(BIN))/python bench/replay_asap.py
	$(SUDO) $(abspath $(BIN))/python bench/replay_dependent.py
	$(abspath $(BIN))/python bench/replay_memory.py --rows 10000000
	$(abspath $(BIN))/python bench/analysis_speed.py
	$(abspath $(BIN))/python bench/report_open.py

clean:
	rm -rf $(VENV) build $(STAMPS) demo-out .vm
