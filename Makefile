# blkreel: build, test, demo. Each target installs what it needs first.
#   make demo     run from a real application to a comparison report, on scratch drives
#   make test     run all tests
#   make fuzz     fuzz every parser and property, FUZZ_SECONDS each (an hour)
#   make test-vm  run tests on an NVMe drive, device mapper and others in a QEMU guest
#   make samples  record the sample traces again
#   make lab      compare predicted with actual load times in guests whose clock counts instructions
#   make bench    compare cost and accuracy with fio, btreplay, blktrace, perf and bpftrace
#   make          build the command .venv/bin/blkreel
#   make install  install the command, man pages and completion below PREFIX (/usr/local); make uninstall
#   make dist     build a wheel and a source archive in dist/; make check-dist tries them
#   make deb      build a Debian package in dist/; make check-deb tries it in a chroot
#   make lint     check names, spelling and types; make clean removes all that was built
#   make help     print this list

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := .stamps
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Packages for the build, the demo and the tests.
APT_BUILD := gcc make pkg-config python3-venv python3-dev clang libbpf-dev libelf-dev zlib1g-dev liburing-dev bpftool
APT_DEMO  := e2fsprogs util-linux
APT_SAMPLES := aria2 curl mktorrent opentracker e2fsprogs util-linux mmdebstrap xvfb imagemagick zstd
APT_TEST  := aria2 mktorrent opentracker btrfs-progs xfsprogs fio blktrace chromium fdisk zstd bpftrace dosfstools bzip2 sqlite3 bash-completion zsh fish mandoc
APT_FUZZ  := clang libclang-rt-dev
APT_VM    := qemu-system-x86 busybox-static cpio kmod fio blktrace nvme-cli dmsetup mdadm fdisk smartmontools
APT_LAB   := bzip2 ffmpeg fio gcc git make ripgrep sqlite3 xz-utils
APT_DEB   := debhelper dpkg-dev fakeroot libcap2-bin python3-click python3-jinja2 python3-rich
APT_CHROOT := mmdebstrap
APT_BENCH := fio blktrace linux-perf bpftrace bzip2 git sqlite3 xz-utils ripgrep ffmpeg

PACKAGES := common traces capture replay analysis benchmarks cli
SOURCES := $(shell git ls-files -co --exclude-standard -- $(PACKAGES) docs/schema tests/native tests/fuzz/native meson.build meson.options \
             packaged_files.py pyproject.toml package.py.in LICENSE README.md 2>/dev/null)

.PHONY: all build install uninstall dist check-dist deb check-deb test test-vm test-vm-rest test-ublk fuzz demo samples lab bench lint docs clean help
all: build

help:
	@sed -n 's/^#   //p' Makefile

build: $(STAMPS)/install

# Prints nothing if all packages are installed. Prints the log only on failure.
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
	@# The pip of Debian 12 cannot pass settings to the build.
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=23.1'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  meson-python meson ninja click fsspec jinja2 numpy pandas pyarrow rich scipy vl-convert-python
	@touch $@

$(STAMPS)/venv-dev: $(STAMPS)/venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  aiohttp altair distributed duckdb hypothesis ipykernel jsonschema mypy nbclient nbformat pandas-stubs perfetto playwright \
	  protobuf pytest pytest-timeout pytest-xdist ruff
	@touch $@

$(STAMPS)/install: $(STAMPS)/venv $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --force-reinstall -Cbuild-dir=build .
	@touch $@

# A private Python environment with the command, so that no Python package of the system changes.
PREFIX  ?= /usr/local
DESTDIR ?=
install: $(STAMPS)/wheel
	$(BIN)/python packaging/install.py --prefix "$(PREFIX)" --destdir "$(DESTDIR)" install dist/blkreel-*.whl

uninstall:
	$(PYTHON) packaging/install.py --prefix "$(PREFIX)" --destdir "$(DESTDIR)" uninstall

$(STAMPS)/wheel: $(STAMPS)/install
	@rm -f dist/blkreel-*.whl
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  -Cbuild-dir=build --wheel-dir dist .
	@touch $@

# The source archive holds the last commit.
dist: $(STAMPS)/wheel
	@rm -f dist/blkreel-*.tar.gz
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -c 'import mesonpy; mesonpy.build_sdist("dist")'
	@ls -l dist

check-dist: dist
	$(BIN)/python packaging/check_dist.py dist

# The package holds the last commit, and is built with the Python of Debian.
deb: $(STAMPS)/apt-build $(STAMPS)/apt-deb
	packaging/build_deb.sh dist

check-deb: deb $(STAMPS)/apt-chroot
	$(SUDO) packaging/check_deb.sh dist/blkreel_*.deb

# All parts run even if one fails. TEST_ARGS are arguments of tests/run.py, such as unit or --all; PYTEST_ARGS run only pytest.
test: $(STAMPS)/install $(STAMPS)/venv-dev $(STAMPS)/apt-demo $(STAMPS)/apt-test
	$(if $(PYTEST_ARGS),$(BIN)/python -m pytest $(PYTEST_ARGS),$(BIN)/python tests/run.py $(TEST_ARGS))

# Fuzzes each target for FUZZ_SECONDS. Failing inputs go to fuzz-findings/. FUZZ_ARGS are targets, such as FUZZ_ARGS=plan.
FUZZ_SECONDS ?= 3600
fuzz: $(STAMPS)/install $(STAMPS)/venv-dev $(STAMPS)/apt-fuzz
	$(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

# Guests with this kernel crash at times under emulation if they have two processors.
RECENT_GUEST := $(BIN)/python tests/vm/run.py --kernel linux-image-6.12-amd64 --processors 1
UBLK_TESTS := tests/vm/guest/test_emulated_by_ublk.py

test-ublk: $(STAMPS)/install $(STAMPS)/venv-dev
	@$(MAKE) --no-print-directory $(STAMPS)/apt-vm || true
	$(RECENT_GUEST) $(UBLK_TESTS)

# VM_ARGS has arguments of run.py and pytest, such as VM_ARGS="-k flush" or VM_ARGS=--shell. Without QEMU, run.py prints
# the reason and skips.
test-vm: $(STAMPS)/install $(STAMPS)/venv-dev
	@$(MAKE) --no-print-directory $(STAMPS)/apt-vm || true
	$(BIN)/python tests/vm/run.py $(VM_ARGS)
	@$(if $(VM_ARGS),,$(MAKE) --no-print-directory test-vm-rest)

# Beside the guest above, a kernel with ublk, atomic writes and uses of pages: the tests of the back end that differ most;
# `make test-ublk` runs all of them. The tests of run.py and of the laboratory are last: they need downloaded kernels.
test-vm-rest: $(STAMPS)/install $(STAMPS)/venv-dev
	$(RECENT_GUEST) $(UBLK_TESTS) tests/vm/guest/test_write_flags.py tests/vm/guest/test_page_uses.py \
	  -k "(written and memory) or killed_server or flushes or atomic or fault"
	@# Side by side: each guest takes one processor. pytest exits with 5 if all tests are skipped, as without QEMU.
	BLKREEL_TEST_RIG=1 $(BIN)/python -m pytest -q tests/vm/test_laboratory.py tests/vm/test_rig.py -n 2 --dist loadgroup || [ $$? -eq 5 ]

# mypy needs the packages under their installed name, so links provide a folder blkreel.
# Native code must compile without warnings with gcc and clang.
lint: $(STAMPS)/install $(STAMPS)/venv-dev
	$(BIN)/ruff check .
	$(BIN)/python tests/check_names.py $(PACKAGES) measurements samples
	$(BIN)/python tests/check_spelling.py $(PACKAGES) measurements samples tests docs README.md CHANGELOG.md
	@mkdir -p $(STAMPS)/types/blkreel
	@for package in $(PACKAGES); do ln -sfn ../../../$$package $(STAMPS)/types/blkreel/$$package; done
	@sed 's/@VERSION@/0/' package.py.in >$(STAMPS)/types/blkreel/__init__.py
	$(BIN)/mypy -p blkreel
	MYPYPATH=$(STAMPS)/types:samples $(BIN)/mypy samples/*.py samples/recording/*.py
	$(BIN)/python tests/native/compile_strictly.py build

# Generated parts of docs/.
docs: $(STAMPS)/install
	$(BIN)/python -m blkreel.analysis.metrics.definitions.metrics_table docs/method.md

# Exit code 3: finished, but a result is not trustworthy. The demo has printed the step and the reason.
demo: $(STAMPS)/install $(STAMPS)/apt-demo
	$(SUDO) "$(abspath $(BIN))"/blkreel demo -o demo-out $(DEMO_ARGS) || [ $$? -eq 3 ]

# All sample traces, or some: make samples SAMPLES="download app-start". Takes an hour and more, 15 GiB of memory, and
# 15 GiB on disk for the Debian systems of the recordings (/var/tmp/blkreel-roots, reused next time).
samples: $(STAMPS)/install $(STAMPS)/apt-samples
	$(SUDO) "$(abspath $(BIN))"/python samples/record.py $(SAMPLES)
	$(BIN)/python samples/describe.py

# The table of load times in docs/measurements.md: hours on one processor. LAB_ARGS has arguments of the program, such as
# LAB_ARGS="--only tar sqlite --pairs 8ms". It also measures PostgreSQL and SuperTuxKart if they are installed.
lab: $(STAMPS)/install $(STAMPS)/venv-dev $(STAMPS)/apt-vm $(STAMPS)/apt-lab
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.laboratory.table $(LAB_ARGS)

# Cost and accuracy of blkreel and comparable tools, as in docs/measurements.md. Takes some minutes.
bench: $(STAMPS)/install $(STAMPS)/venv-dev $(STAMPS)/apt-bench
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.capture.cost
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.capture.synthetic
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.replay.pacing
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.replay.telemetry_cost
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.replay.asap
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.replay.dependent
	$(SUDO) "$(abspath $(BIN))"/python -m measurements.replay.emulated_drive
	"$(abspath $(BIN))"/python -m measurements.replay.memory --rows 10000000
	"$(abspath $(BIN))"/python -m measurements.analysis.speed
	"$(abspath $(BIN))"/python -m measurements.analysis.report_open
	"$(abspath $(BIN))"/python -m measurements.analysis.completion

clean:
	rm -rf $(VENV) build dist $(STAMPS) demo-out .vm fuzz-findings
