"""The recipes that ship: readable, complete, as the method describes its workloads, and usable on any drive."""

import re
import tomllib

import pytest
from tree import TREE

from blkreel.benchmarks.recipe import recipe as recipe_module
from blkreel.benchmarks.recipe import steps as steps_module
from blkreel.benchmarks.recipe.recipe import load_recipe, parse_recipe, procedure_checksum, recipe_names
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.benchmarks.recipe.values import KINDS
from blkreel.replay.streams.generate import extent_of, row_count

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


def test_every_recipe_is_installed_and_there_is_one_for_each_row_of_the_method():
    assert recipe_names() == NAMES
    assert set(NAMES) >= {"mixed-burst", "mixed-burst-2016", "mixed-random", "mixed-sequential", "consistency",
                          "depth-sweep-read", "depth-sweep-write", "qd1", "trim", "slc-cache", "trace",
                          "trace-consistency", "game-score"}


def test_an_edited_copy_of_a_recipe_is_another_procedure_only_if_its_steps_differ():
    text = load_recipe("consistency").source
    assert procedure_checksum("consistency", text) == ""
    assert procedure_checksum("consistency", text.replace('title = "', 'title = "My ')) == ""
    edited = procedure_checksum("consistency", text.replace("write", "read"))
    assert edited and edited == procedure_checksum("mine", text.replace("write", "read"))


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


def size(count):
    units = ((GIB, "G"), (MIB, "M"), (KIB, "K"), (1, ""))
    return next(f"{count // unit}{letter}" for unit, letter in units if count % unit == 0)


def stream_words(stream):
    start, end = extent_of(stream)
    parts = [f"{stream.access} {stream.op} {size(stream.block_bytes)} x{stream.depth}", f"{size(start)} to {size(end)}"]
    if stream.read_percent and stream.op != "read":
        parts.append(f"{stream.read_percent} % reads")
    if (bursts := stream.bursts) is not None:
        parts.append(f"{bursts.count or 'endless'} bursts of {size(bursts.bytes)} each {bursts.every_ns / S:g} s from "
                     f"{bursts.first_ns / S:g} s on")
    parts += [f"sizes {' '.join(map(size, stream.lengths_bytes))}"] if stream.lengths_bytes else []
    parts += [f"volume {stream.volume_bytes / 1e9:.4g} GB"] if stream.volume_bytes else []
    parts += [f"{stream.rate_iops:g} IOPS"] if stream.rate_iops else []
    parts += [f"each {stream.every_ns / S:g} s"] if stream.every_ns else []
    return ", ".join(parts) + (" in the background" if stream.background else "")


def lines(name, **options):
    """Each step as a line: its role and labels, its time, its streams with the places that they may touch."""
    def line(step):
        if step.do == "state":
            return f"state {step.state}"
        time = "" if step.time_ns is None else f" {step.time_ns // S} s"
        if step.do == "rest":
            return f"rest{time or ' as active'}"
        labels = " ".join(str(value) for label, value in step.labels.items() if label != "repeat")
        if step.do == "replay":
            return f"{step.role} {labels}: {step.trace}, idle {step.idle}, pace {step.pace}"
        return f"{step.role} {labels}{time}: {'; '.join(map(stream_words, step.streams))}"

    return [line(step) for step in steps(name, **options)]


@pytest.mark.parametrize(("name", "writer"), [
    ("mixed-burst", "random write 16K x2, 0G to 8G, endless bursts of 40M"),
    ("mixed-burst-2016", "random write 16K x4, 0G to 8G, endless bursts of 200M")])
def test_mixed_burst_is_the_methods(name, writer):
    """No extent is read twice, and none that is read is written: 4,000 MiB each."""
    reads = "10 bursts of 400M each 6.2 s from 30 s on"
    assert lines(name) == [
        "state client", f"baseline client: sequential read 64K x2, 12192M to 16192M, {reads}",
        f"mixed client: sequential read 64K x2, 8G to 12192M, {reads}; "
        f"{writer} each 2 s from 0 s on in the background"]
    ours, theirs = told("mixed-burst"), told(name)
    assert ours["steps"] == theirs["steps"] and ours["regions"] == theirs["regions"]
    changed = {key for key, how in ours["parameters"].items() if theirs["parameters"][key] != how}
    assert changed <= {"write_burst", "write_depth"}


def test_on_a_small_drive_the_writer_stays_in_what_the_state_client_overwrites():
    assert "random write 16K x2, 0G to 4G," in lines("mixed-burst", size_bytes=128 * GIB)[2]


@pytest.mark.parametrize(("name", "stream"), [
    ("mixed-random", "random write 4K x4"), ("mixed-sequential", "halves write 128K x1")])
def test_the_mixes_are_the_methods(name, stream):
    """In 64 GB, as whole MiB."""
    assert lines(name) == [line for state in ("data", "full") for line in [f"state {state}", *(
        line for mix in range(100, -1, -10) for line in (
            f"mix {state} {mix} 60 s: {stream}, 0G to 61036M{f', {mix} % reads' if mix else ''}, volume 32 GB",
            "rest as active"))]]
    assert steps(name)[0].spans == ((0, 61036 * MIB),)


@pytest.mark.parametrize("states", ["full", "full,full+op25"])
def test_consistency_is_the_methods(states):
    assert lines("consistency", given={"states": states}) == [
        "state full", "consistency full 3600 s: random write 4K x32, 0G to 512G",
        "state full+op25", "consistency full+op25 3600 s: random write 4K x32, 0G to 384G"][:2 * len(states.split(","))]


def test_steady_write_is_the_methods():
    assert lines("steady-write")[:2] == ["state full", "round full 1 60 s: random write 4K x32, 0G to 512G"]


@pytest.mark.parametrize("op", ["read", "write"])
def test_the_depth_sweeps_are_the_methods(op):
    assert lines(f"depth-sweep-{op}") == ["state enterprise", *(
        f"depth enterprise {1 << n} 180 s: random {op} 4K x{1 << n}, 0G to 512G" for n in range(8))]


def test_qd1_is_the_methods():
    places = {"random": "0G to 61036M", "sequential": "61036M to 122072M"}
    kinds = [(access, op) for access in places for op in ("read", "write")]
    blocks = {"random": "4K", "sequential": "128K"}
    assert lines("qd1") == [
        "state full",
        *(f"qd1 full {access} {blocks[access]} {op} 60 s: {access} {op} {blocks[access]} x1, {places[access]}"
          for access, op in kinds),
        *(f"blocks full {access} {op} {size(512 << n)} 30 s: {access} {op} {size(512 << n)} x1, {places[access]}"
          for access, op in kinds for n in range(12)),
        *(f"depth full 4K {1 << n} 30 s: random read 4K x{1 << n}, 0G to 61036M" for n in range(8))]


def test_qd1_leaves_out_blocks_that_a_drive_cannot_take():
    assert min(step.labels["block"] for step in measured("qd1", "blocks", block_bytes=4096)) == 4096


def test_trim_is_the_methods():
    """What is read is never discarded."""
    assert lines("trim") == [
        "state full",
        f"extents full: extents discard 512 x1, 8G to 57152M, sizes{' 64M 128M 256M 512M 1G 2G 4G 8G' * 3}, each 8 s; "
        "random read 4K x32, 0G to 8G, 1000 IOPS in the background",
        "refill full: sequential write 128K x32, 8G to 57152M, volume 51.34 GB",
        "whole full: extents discard 512 x1, 0G to 512G, sizes 512G",
        "whole empty full: extents discard 512 x1, 0G to 512G, sizes 512G"]


def test_slc_cache_is_the_methods():
    """The parts are whole MiB each. On a nearly empty drive, the fills overwrite its data."""
    assert lines("slc-cache") == [
        "state fresh", "fill fresh 0: sequential write 1M x1, 0G to 209715M, volume 219.9 GB",
        "rest 30 s", f"fill fresh {30 * S}: sequential write 1M x1, 209715M to 314572M, volume 110 GB",
        "rest 300 s", f"fill fresh {300 * S}: sequential write 1M x1, 314572M to 419429M, volume 110 GB",
        "rest 1800 s", f"fill fresh {1800 * S}: sequential write 1M x1, 419429M to 524286M, volume 110 GB"]
    nearly_empty = {"states": "data", "first_fill": "1GiB", "next_fill": "1GiB"}
    assert steps("slc-cache", given=nearly_empty)[0].spans == tuple((n * GIB, (n + 1) * GIB) for n in range(4))


def test_trace_is_the_methods():
    assert lines("trace", given={"trace": "some.parquet"}) == [line for state in ("fresh", "full") for line in (
        f"state {state}", f"trace {state}: some.parquet, idle cap=25ms, pace original")]


def test_trace_consistency_is_the_published_method():
    """https://support.benchmarks.ul.com/support/solutions/articles/44002171488"""
    minutes = {"degrade": [10, 15, 20, 25, 30, 35, 40, 45], "steady": [45] * 5, "recovery": [5] * 5}
    assert lines("trace-consistency", given={"traces": "a.parquet,b.parquet"}) == [
        "state full", "fill full 2: sequential write 128K x32, 0G to 512G, volume 549.8 GB",
        *(line for phase, times in minutes.items() for number, time in enumerate(times, 1) for line in (
            f"rest {60 * time} s" if phase == "recovery" else
            f"writes full {phase} {number} {60 * time} s: random-sizes write 512 x32, 0G to 512G, sizes 4K 1M",
            *(f"trace full {phase} {number} {trace}: {trace}, idle cap=25ms, pace original"
              for trace in ("a.parquet", "b.parquet"))))]


def test_trace_consistency_without_a_second_fill():
    assert not measured("trace-consistency", "fill", given={"fills": "1"})
    assert len(measured("trace-consistency", "fill", given={"fills": "3"})) == 2


def test_game_score_is_the_published_method():
    assert lines("game-score") == ["state client", *(
        f"trace client {number} sample:{name}: sample:{name}, idle cap=25ms, pace original" for number in (1, 2, 3)
        for name in ("game-load", "game-download", "download", "package-install"))]


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
