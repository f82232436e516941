"""The recipes that ship: readable, complete, as the method describes its workloads, and usable on any drive."""

import re
import tomllib

import pytest
from tree import TREE

from blkreel.benchmarks.recipe import recipe as recipe_module
from blkreel.benchmarks.recipe import steps as steps_module
from blkreel.benchmarks.recipe.recipe import load_recipe, parse_recipe, recipe_names
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.benchmarks.recipe.values import KINDS
from blkreel.replay.streams.generate import bound_bytes, extent_of, row_count

KIB, MIB, GIB, S = 1 << 10, 1 << 20, 1 << 30, 10**9
FILES = sorted((TREE / "benchmarks/recipes").glob("*.toml"))
NAMES = sorted(path.stem for path in FILES)


def told(name):
    return tomllib.loads((TREE / "benchmarks/recipes" / f"{name}.toml").read_text())


def steps(name, size_bytes=512 * GIB, given=(), *, quick=False, scale=1.0, block_bytes=512):
    recipe = load_recipe(name)
    return steps_of(recipe, recipe.resolve(dict(given), quick=quick, scale=scale), size_bytes=size_bytes,
                    block_bytes=block_bytes, seed=1)


def measured(name, role=None, **options):
    return [step for step in steps(name, **options) if step.do == "measure" and role in (None, step.role)]


def only(items):
    assert len(items) == 1
    return items[0]


def test_every_recipe_is_installed_and_there_is_one_for_each_row_of_the_method():
    assert recipe_names() == NAMES
    assert set(NAMES) >= {"mixed-burst", "mixed-burst-2016", "mixed-random", "mixed-sequential", "consistency",
                          "depth-sweep-read", "depth-sweep-write", "qd1", "trim", "slc-cache", "trace",
                          "trace-consistency", "game-score"}


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_used_and_explained(name):
    text = (TREE / f"benchmarks/recipes/{name}.toml").read_text()
    for parameter, how in told(name)["parameters"].items():
        assert how["about"].strip()
        assert re.search(rf'"= [^"]*\b{parameter}\b', text), parameter
    assert "repeats" in told(name)["parameters"]
    assert len(told(name)["explain"].split()) > 50


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("size_bytes", "quick", "block_bytes"), [
    (64 * MIB, False, 512), (64 * MIB, True, 4096), (GIB + 12345 * 4096, False, 4096), (240 * 10**9, True, 512),
    (8 * 10**12, False, 512)])
def test_fitted_it_runs_on_any_drive(name, size_bytes, quick, block_bytes):
    """Every step stays inside the drive, ends, and reads only what the state or a step before has written."""
    for step in steps(name, size_bytes, quick=quick, scale=min(1.0, size_bytes / (256 * GIB)), block_bytes=block_bytes):
        if step.do == "state":
            written = {"data": list(step.spans), "client": [(0, size_bytes * 94 // 100)]}.get(
                step.state, [(0, size_bytes)])
        for stream in step.streams:
            start, end = extent_of(stream)
            assert 0 <= start < end <= size_bytes
            assert start % block_bytes == 0 and stream.block_bytes % block_bytes == 0
            assert row_count(stream, step.time_ns) != 0
            if stream.op == "read" or stream.read_percent:
                assert any(low <= start and end <= high for low, high in written), step.title
        if step.do == "measure":
            assert step.time_ns or any(not one.background and row_count(one) for one in step.streams)


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_test_is_quick(name):
    """A minute and a half at most where the drive does 500 MB/s, with no state that fills it; at 2 TB."""
    seconds, written = 0, 0
    for step in steps(name, 2 * 10**12, quick=True):
        if step.do == "state":
            assert step.state in ("data", "fresh")
            written += sum(end - start for start, end in step.spans)
        elif step.do == "measure":
            closed = [one for one in step.streams if not one.background and not one.timed]
            timed = [one for one in step.streams if one.bursts and one.bursts.count]
            moved_s = sum(row_count(one) * one.block_bytes for one in closed if row_count(one) and one.op != "discard")
            ends = [step.time_ns / S] if step.time_ns else [moved_s / 500e6]
            took = min(ends) + sum(one.bursts.first_ns + one.bursts.count * one.bursts.every_ns for one in timed) / S
            took += sum(len(one.lengths_bytes) * (one.every_ns or 0) for one in step.streams) / S
            last = took
            seconds += took
        elif step.do == "rest":
            seconds += last if step.time_ns is None else step.time_ns / S
    assert written < 10e9
    assert seconds + written / 500e6 < 90


def test_sizes_are_shown_as_they_were_written():
    for name, parameter, words in (("mixed-random", "block", "4 KiB"), ("mixed-random", "span", "64.0 GB"),
                                   ("mixed-burst", "write_burst", "40 MiB"), ("consistency", "span", "100%"),
                                   ("trim", "sizes", "64 MiB, 128 MiB, 256 MiB, 512 MiB, 1 GiB, 2 GiB, 4 GiB, 8 GiB")):
        one = load_recipe(name).parameters[parameter]
        assert one.format(one.value) == words


def test_mixed_burst_is_the_methods():
    prepare, alone, beside = steps("mixed-burst")
    assert prepare.state == "client"
    reads, writer = beside.streams
    assert (writer.op, writer.read_percent, writer.access, writer.block_bytes, writer.depth) == (
        "write", 0, "random", 16 * KIB, 2)
    assert (writer.bursts.bytes, writer.bursts.every_ns, writer.bursts.first_ns) == (40 * MIB, 2 * S, 0)
    assert (writer.start_bytes, writer.span_bytes) == (0, 8 * GIB)
    assert writer.background and writer.bursts.count is None and writer.volume_bytes is None
    assert (reads.op, reads.access, reads.block_bytes, reads.depth) == ("read", "sequential", 64 * KIB, 2)
    assert (reads.bursts.bytes, reads.bursts.every_ns, reads.bursts.first_ns, reads.bursts.count) == (
        400 * MIB, 6_200_000_000, 30 * S, 10)
    assert row_count(reads) == 64_000
    quiet = only(alone.streams)
    assert (quiet.bursts, quiet.block_bytes, quiet.depth, quiet.access) == (
        reads.bursts, reads.block_bytes, reads.depth, reads.access)
    places = sorted([extent_of(writer), extent_of(reads), extent_of(quiet)])
    assert all(before[1] <= after[0] for before, after in zip(places, places[1:], strict=False))
    assert extent_of(reads)[1] - extent_of(reads)[0] == 4000 * MIB, "no extent is read twice"
    assert {alone.role, beside.role} == {"baseline", "mixed"}


def test_the_variant_of_2016_differs_in_the_writer_alone():
    new, old = steps("mixed-burst"), steps("mixed-burst-2016")
    writer = old[2].streams[1]
    assert (writer.bursts.bytes, writer.depth) == (200 * MIB, 4)
    assert old[2].streams[0].bursts == new[2].streams[0].bursts
    ours, theirs = told("mixed-burst"), told("mixed-burst-2016")
    assert ours["steps"] == theirs["steps"] and ours["regions"] == theirs["regions"]
    changed = {name for name, how in ours["parameters"].items() if theirs["parameters"][name] != how}
    assert changed == {"write_burst", "write_depth"}


def test_on_a_small_drive_the_writer_stays_in_what_the_state_client_overwrites():
    writer = steps("mixed-burst", 128 * GIB)[2].streams[1]
    assert (writer.start_bytes, writer.span_bytes) == (0, 4 * GIB)


@pytest.mark.parametrize(("name", "block", "depth", "access"), [
    ("mixed-random", 4 * KIB, 4, "random"), ("mixed-sequential", 128 * KIB, 1, "halves")])
def test_the_mixes_are_the_methods(name, block, depth, access):
    found = steps(name)
    assert [step.state for step in found if step.do == "state"] == ["data", "full"]
    mixes = [step for step in found if step.do == "measure"]
    assert [step.labels["mix"] for step in mixes] == [100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 0] * 2
    for step in mixes:
        stream = only(step.streams)
        assert (stream.block_bytes, stream.depth, stream.access, stream.op) == (block, depth, access, "write")
        assert stream.read_percent == step.labels["mix"]
        # 64 GB, in whole MiB.
        assert (stream.start_bytes, stream.span_bytes) == (0, -(-64 * 10**9 // MIB) * MIB)
        assert (step.time_ns, stream.volume_bytes) == (60 * S, 32 * 10**9)
        after = found[found.index(step) + 1]
        assert after.do == "rest" and after.time_ns is None
    assert found[0].spans == ((0, -(-64 * 10**9 // MIB) * MIB),)


def test_consistency_is_the_methods():
    prepare, step = steps("consistency")
    assert prepare.state == "full"
    stream = only(step.streams)
    assert (stream.op, stream.read_percent, stream.access, stream.block_bytes, stream.depth) == (
        "write", 0, "random", 4 * KIB, 32)
    assert step.time_ns == 3600 * S and stream.volume_bytes is None
    assert extent_of(stream) == (0, 512 * GIB)
    for one in measured("consistency", given={"states": "full,full+op25"}):
        size = 512 * GIB if one.labels["state"] == "full" else 384 * GIB
        assert extent_of(only(one.streams)) == (0, size)


@pytest.mark.parametrize("op", ["read", "write"])
def test_the_depth_sweeps_are_the_methods(op):
    prepare, *sweep = steps(f"depth-sweep-{op}")
    assert prepare.state == "enterprise"
    assert [step.labels["depth"] for step in sweep] == [1, 2, 4, 8, 16, 32, 64, 128]
    for step in sweep:
        stream = only(step.streams)
        assert (stream.op, stream.access, stream.block_bytes) == (op, "random", 4 * KIB)
        assert stream.read_percent == (100 if op == "read" else 0)
        assert (step.time_ns, stream.depth) == (180 * S, step.labels["depth"])
        assert extent_of(stream) == (0, 512 * GIB)


def test_qd1_is_the_methods():
    kinds = [(step.labels["access"], step.labels["op"], only(step.streams).block_bytes, only(step.streams).depth)
             for step in measured("qd1", "qd1")]
    assert sorted(kinds) == [("random", "read", 4096, 1), ("random", "write", 4096, 1),
                             ("sequential", "read", 131072, 1), ("sequential", "write", 131072, 1)]
    sizes = {}
    for step in measured("qd1", "blocks"):
        stream = only(step.streams)
        assert (stream.op, stream.access, stream.block_bytes, stream.depth) == (
            step.labels["op"], step.labels["access"], step.labels["block"], 1)
        sizes.setdefault((stream.access, stream.op), []).append(stream.block_bytes)
    assert set(sizes) == {(access, op) for access in ("random", "sequential") for op in ("read", "write")}
    assert all(found == [512 << n for n in range(12)] for found in sizes.values())
    assert [only(step.streams).depth for step in measured("qd1", "depth")] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_qd1_leaves_out_blocks_that_a_drive_cannot_take():
    assert min(step.labels["block"] for step in measured("qd1", "blocks", block_bytes=4096)) == 4096


def test_trim_is_the_methods():
    found = steps("trim")
    assert found[0].state == "full"
    beside = only([step for step in found if step.role == "extents"])
    discards, background = beside.streams
    assert (background.op, background.rate_iops, background.access) == ("read", 1000, "random")
    assert background.background
    assert discards.op == "discard" and discards.access == "extents"
    assert sorted(set(discards.lengths_bytes)) == [MIB * 64 << n for n in range(8)]
    assert all(discards.lengths_bytes.count(size) == 3 for size in discards.lengths_bytes)
    assert extent_of(background)[1] <= extent_of(discards)[0], "what is read is never discarded"
    refill = only(only([step for step in found if step.role == "refill"]).streams)
    assert extent_of(refill) == extent_of(discards) and bound_bytes(refill)[0] == sum(discards.lengths_bytes)
    whole = [step for step in found if step.role == "whole"]
    assert [step.labels["state"] for step in whole] == ["full", "empty"]
    assert [only(step.streams).lengths_bytes for step in whole] == [(512 * GIB,)] * 2
    assert found[-2:] == whole


def test_slc_cache_is_the_methods():
    found = steps("slc-cache")
    assert found[0].state == "fresh"
    fills = [step for step in found if step.role == "fill"]
    assert [step.time_ns for step in found if step.do == "rest"] == [30 * S, 300 * S, 1800 * S]
    assert [step.labels["rest_ns"] for step in fills] == [0, 30 * S, 300 * S, 1800 * S]
    behind = 0
    for step in fills:
        stream = only(step.streams)
        assert (stream.op, stream.access, stream.block_bytes, stream.depth) == ("write", "sequential", MIB, 1)
        assert stream.start_bytes == behind
        behind = extent_of(stream)[1]
    # The parts are whole MiB each.
    assert 512 * GIB - 4 * MIB <= behind <= 512 * GIB
    assert bound_bytes(only(fills[0].streams))[0] > 512 * GIB / 3


def test_trace_is_the_methods():
    found = steps("trace", given={"trace": "some.parquet"})
    assert [step.state for step in found if step.do == "state"] == ["fresh", "full"]
    replays = [step for step in found if step.do == "replay"]
    assert [(step.trace, step.idle, step.pace) for step in replays] == [("some.parquet", "cap=25ms", "original")] * 2


def test_trace_consistency_is_the_published_method():
    """https://support.benchmarks.ul.com/support/solutions/articles/44002171488"""
    found = steps("trace-consistency", given={"traces": "a.parquet,b.parquet"})
    prepare, fill, *passes = found
    assert prepare.state == "full"
    stream = only(fill.streams)
    assert (stream.op, stream.access, stream.block_bytes, stream.volume_bytes) == (
        "write", "sequential", 256 * 512, 512 * GIB)
    assert extent_of(stream) == (0, 512 * GIB)
    order, traces, minutes = [], [], {"degrade": [], "steady": [], "recovery": []}
    for step in passes:
        phase = step.labels["phase"]
        if step.do == "replay":
            traces.append((phase, step.labels["pass_number"], step.trace))
            assert (step.role, step.idle, step.pace) == ("trace", "cap=25ms", "original")
            continue
        order.append((phase, step.labels["pass_number"], step.do))
        minutes[phase].append(step.time_ns // (60 * S))
        if step.do == "measure":
            stream = only(step.streams)
            assert (stream.op, stream.read_percent, stream.access) == ("write", 0, "random-sizes")
            assert stream.lengths_bytes == (8 * 512, 2048 * 512) and stream.block_bytes == 512
            assert extent_of(stream) == (0, 512 * GIB) and stream.volume_bytes is None
    assert minutes == {"degrade": [10, 15, 20, 25, 30, 35, 40, 45], "steady": [45] * 5, "recovery": [5] * 5}
    assert [do for _, _, do in order] == ["measure"] * 13 + ["rest"] * 5
    assert traces == [(phase, number, trace) for phase, number, _ in order for trace in ("a.parquet", "b.parquet")]
    # Each pass: its writes or its idle time, then the traces.
    assert [step.do == "replay" for step in passes] == [False, True, True] * 18


def test_the_random_writes_of_trace_consistency_are_whole_blocks_of_the_drive():
    writes = measured("trace-consistency", "writes", block_bytes=4096)
    assert {only(step.streams).block_bytes for step in writes} == {4096}


def test_trace_consistency_without_a_second_fill():
    assert not measured("trace-consistency", "fill", given={"fills": "1"})
    assert len(measured("trace-consistency", "fill", given={"fills": "3"})) == 2


def test_game_score_is_the_published_method():
    prepare, *replays = steps("game-score")
    samples = ["sample:game-load", "sample:game-download", "sample:download", "sample:package-install"]
    assert prepare.state == "client"
    assert [(step.labels["pass_number"], step.trace) for step in replays] == [
        (number, sample) for number in (1, 2, 3) for sample in samples]


def test_the_path_of_a_trace_fits_the_name_of_a_directory():
    """A directory's name has at most 255 bytes."""
    long = "long/" * 300
    _, first, second = steps("game-score", given={"passes": "1", "traces": f"{long}a.parquet,{long}b.parquet"})
    assert len(first.id) < 200 and first.id != second.id


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"slc-cache", "trace", "game-score"}))
@pytest.mark.parametrize("state", ["data", "full", "data+op25", "full+op25"])
def test_nearly_empty_or_full_with_or_without_spare(name, state):
    size = 512 * GIB
    found = steps(name, size, given={"states": state})
    assert found[0].state == state
    limit = size * 3 // 4 if state.endswith("op25") else size
    assert max(extent_of(stream)[1] for step in found for stream in step.streams) <= limit
    if state.startswith("data"):
        assert max(end for _, end in found[0].spans) <= limit


@pytest.mark.parametrize("name", NAMES)
def test_repeats_do_all_of_it_again_from_the_state_on(name):
    once, thrice = steps(name, 512 * GIB), steps(name, 512 * GIB, given={"repeats": "3"})
    assert len(thrice) == 3 * len(once)
    assert {step.labels["repeat"] for step in thrice} == {1, 2, 3}
    first, second = (next(step for step in thrice if step.labels["repeat"] == n and step.measures) for n in (1, 2))
    if first.streams:
        assert first.streams[0].seed != second.streams[0].seed


def documented():
    return (TREE / "docs/tests.md").read_text()


def test_the_recipe_in_the_docs_works():
    recipe = parse_recipe("own", re.search(r"```toml\n(.*?)```", documented(), re.DOTALL)[1].encode())
    found = steps_of(recipe, recipe.resolve({}, quick=True), size_bytes=64 * GIB, block_bytes=512, seed=1)
    assert [(step.do, step.labels.get("depth")) for step in found] == [("state", None), ("measure", 1), ("measure", 64)]
    assert [stream.name for stream in found[1].streams] == ["reads", "writer"]


COMMANDS = sorted(set(re.findall(r"^blkreel test ([a-z].*?)(?: +#.*)?$", documented(), re.MULTILINE)))


@pytest.mark.parametrize("words", COMMANDS)
def test_the_commands_in_the_docs_work(words):
    """Each example expands to steps on the drive that it names."""
    name, *options = words.split()
    sets = dict(options[at + 1].split("=", 1) for at, option in enumerate(options) if option == "--set")
    size_bytes = 128 * GIB if "--fit" in options else 1000 * GIB
    scale = size_bytes / (256 * GIB) if "--fit" in options else 1.0
    assert steps(name, size_bytes, sets, quick="--quick" in options, scale=scale)


def test_the_docs_have_a_section_for_each_test_and_every_key():
    sections = ",".join(re.findall(r"^## (.*)$", documented(), re.MULTILINE))
    assert all(name in sections or name == "mixed-burst-2016" for name in NAMES)
    format_reference = documented().partition("## Writing a recipe")[2]
    keys = (recipe_module._PARAMETER_KEYS, steps_module._COMMON_KEYS, *steps_module._STEP_KEYS.values(),
            steps_module._STREAM_KEYS, steps_module._BURST_KEYS)
    for key in {"regions"}.union(*keys):
        assert re.search(rf"`\[*{key}|\b{key}\b", format_reference), key
    for kind in KINDS:
        assert f"`{kind}`" in format_reference
