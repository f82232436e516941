"""What the cached load time without latency depends on."""

from blkreel.replay.run import zero_latency


def test_another_planner_is_another_version(tmp_path, monkeypatch):
    """Within one release, a load time of the planner before would be taken for that of this one."""
    versions = []
    for content in ("first", "second", "second"):
        (tmp_path / "plan.py").write_text(content)
        monkeypatch.setattr(zero_latency, "_PLANNER", tmp_path)
        zero_latency.engine_version.cache_clear()
        versions.append(zero_latency.engine_version())
    zero_latency.engine_version.cache_clear()
    assert versions[0] != versions[1] == versions[2]
