"""Commands that start without stdin, stdout or stderr, or a directory: no file or pipe of theirs gets the number."""

import subprocess

import pytest


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_a_closed_descriptor_is_given_to_the_null_device(blkreel, tmp_path, descriptor):
    code = ("import os, sys; from blkreel.cli.main import main; sys.argv = ['blkreel', 'samples', '-q']\n"
            "try: main()\nexcept SystemExit: pass\n"
            f"open({str(tmp_path / 'target')!r}, 'w').write(os.readlink('/proc/self/fd/{descriptor}') + "
            f"str(os.get_inheritable({descriptor})))")
    script = f'exec "{blkreel.command.with_name("python")}" -c "$1" {descriptor}>&-'
    subprocess.run(["/bin/bash", "-c", script, "bash", code], check=True, env=blkreel.environment, timeout=300)
    assert (tmp_path / "target").read_text() == "/dev/nullTrue"


def test_a_stdout_on_a_full_disk_is_one_line(blkreel):
    with open("/dev/full", "w") as full:
        result = subprocess.run([blkreel.command, "samples", "--json"], stdout=full, stderr=subprocess.PIPE, text=True,
                                env=blkreel.environment, timeout=300)
    assert result.returncode == 1 and result.stderr == "blkreel: No space left on device\n"


def test_a_current_directory_that_was_removed_is_named(blkreel, tmp_path):
    script = f'mkdir gone; cd gone; rmdir ../gone; exec "{blkreel.command}" report sample:app-start -o page.html'
    result = subprocess.run(["/bin/sh", "-c", script], stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                            env=blkreel.environment, timeout=300)
    assert (result.returncode, result.stderr) == (1, "blkreel: the current directory was removed; change to another "
                                                     "one: cd\n")
