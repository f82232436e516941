"""The command line of an emulated drive; tests/kernel/replay/test_emulated.py runs drives."""

import pytest

DRIVE = "nil:64MiB,read_latency=200us"


@pytest.mark.parametrize(("words", "why"), [
    (["nil:64GiB"], "no drive model; name a typical drive"),
    (["nil:64MiB,read_latncy=1ms"], "did you mean 'read_latency'"),
    (["no.toml"], "cannot read no.toml"),
    (["sizeless.toml"], "no size"),
    ([DRIVE, "--memory", "--image", "x.img"], "exclude each other"),
    ([DRIVE, "--name", "a/b"], "invalid name"),
    ([DRIVE, "--mount", "nowhere"], "no such directory"),
    ([DRIVE, "--image", "x.img", "--fs", "ext4"], "which has data"),
    ([DRIVE, "--"], "no command after --")])
def test_invalid_use_is_one_line(blkreel, tmp_path, words, why):
    (tmp_path / "sizeless.toml").write_text('read_latency = "1ms"\n')
    (tmp_path / "x.img").write_bytes(b"data")
    result = blkreel("emulate", *words, code=(2, 5), cwd=tmp_path)
    assert why in result.stderr
    assert result.stderr.count("\n") == 1
