"""The Debian package agrees with the tree: version, dependencies, unit and the paths that its scripts name."""

import os
import re
import shlex
import subprocess
import tomllib

from tree import TREE

DEBIAN = TREE / "debian"
# What Debian calls the Python packages that it provides, and what else these need.
LINKED = {"click": "python3-click", "jinja2": "python3-jinja2", "rich": "python3-rich"}
NEEDED_BY_LINKED = {"markdown_it", "markupsafe", "mdurl", "pygments"}


def test_the_version_is_that_of_the_build():
    version = re.search(r"version: '([^']+)'", (TREE / "meson.build").read_text())[1]
    assert (DEBIAN / "changelog").read_text().startswith(f"blkreel ({version}) ")


def test_a_package_of_a_later_commit_has_a_later_version(tmp_path):
    """apt takes a package of the same version for the installed one: the older commit stayed, and apt exited with 0."""
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    for path in ("packaging/build_deb.sh", "debian/changelog"):
        (checkout / path).parent.mkdir(parents=True)
        (checkout / path).write_bytes((TREE / path).read_bytes())
    programs.mkdir()
    (programs / "dpkg-buildpackage").write_text("#!/bin/sh\ncp debian/changelog ../blkreel_0.deb\n")
    (programs / "dpkg-buildpackage").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    versions = []
    for date in ("2026-11-29T23:59:59 -0800", "2026-11-30T08:00:00 +0000"):  # a second apart
        for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.invalid commit -q -m 1"):
            subprocess.run(["git", *command.split()], cwd=checkout, check=True,
                           env={**environment, "GIT_COMMITTER_DATE": date})
        subprocess.run(["bash", "packaging/build_deb.sh", tmp_path], cwd=checkout, check=True, env=environment)
        versions.append(re.match(r"blkreel \((.*)\) ", (tmp_path / "blkreel_0.deb").read_text())[1])
        (checkout / "file").touch()
    own = re.match(r"blkreel \((.*)\) ", (DEBIAN / "changelog").read_text())[1]
    assert versions == [f"{own}+git20261130075959", f"{own}+git20261130080000"]


def test_linked_packages_are_dependencies_with_the_versions_of_the_project():
    rules, control = (DEBIAN / "rules").read_text(), (DEBIAN / "control").read_text()
    linked = set(re.search(r"^from_debian := (.*)$", rules, re.MULTILINE)[1].split())
    assert linked == set(LINKED) | NEEDED_BY_LINKED
    requirements = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["dependencies"]
    versions = dict(requirement.split(">=") for requirement in requirements)
    binary = control.partition("Package: blkreel")[2]
    for name, package in LINKED.items():
        assert f"{package} (>= {versions[name]})" in binary


def test_the_unit_runs_options_that_exist():
    from blkreel.cli.commands.capture import command as capture

    unit = (TREE / "packaging/blkreel-recorder.service").read_text()
    start = re.search(r"^ExecStart=@PREFIX@/bin/blkreel capture (.*)$", unit, re.MULTILINE)[1]
    known = {name for parameter in capture.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options = set(re.findall(r"(?<!\S)--?[a-z][\w-]*", start))
    assert {"--keep", "--max-size"} <= options <= known
    settings = dict(word.split("=", 1) for word in shlex.split(re.search(r"^Environment=(.*)$", unit, re.MULTILINE)[1]))
    words = re.sub(r"\$\{?([A-Z_]+)\}?", lambda match: settings[match[1]], start).split()
    parameters = capture.make_context("capture", words).params
    assert parameters["max_bytes"] == 256 << 20 and parameters["force"]
    # Without a command, a capture has no default drive.
    assert parameters["path"] == "." or parameters["devices"]


def test_the_capabilities_are_those_that_doctor_checks():
    from blkreel.cli.requirements import CAPABILITIES

    assert f"setcap {','.join(CAPABILITIES)}+ep" in (DEBIAN / "blkreel.postinst").read_text()


def test_the_unit_waits_until_the_capture_records():
    """A reload before that would be a SIGUSR1 for a process without its handler, which ends it."""
    unit = (TREE / "packaging/blkreel-recorder.service").read_text()
    assert "Type=notify\n" in unit and "\nExecReload=/bin/sh -c 'kill -USR1 ${MAINPID}'\n" in unit


def test_the_unit_starts_again_after_a_session_that_ended_early():
    """A capture whose helper was killed, or whose disk was full, saves its trace and ends with 3, as after a stop with
    lost events. That is a success, after which systemd started nothing again: nothing was recorded from then on."""
    settings = (TREE / "packaging/blkreel-recorder.service").read_text().splitlines()
    assert {"SuccessExitStatus=3 130", "RestartForceExitStatus=3"} <= set(settings)


def test_an_upgrade_restarts_a_running_unit():
    """--no-start is for the installation; with it alone, an upgrade would leave the old code running."""
    (options,) = re.findall(r"^\tdh_installsystemd (.*) blkreel-recorder.service$", (DEBIAN / "rules").read_text(),
                            re.MULTILINE)
    assert options.split() == ["--no-enable", "--no-start", "--restart-after-upgrade"]


def test_removing_the_package_stops_the_unit():
    removal = (DEBIAN / "blkreel.prerm").read_text()
    assert "deb-systemd-invoke stop blkreel-recorder.service" in removal and "#DEBHELPER#" in removal
