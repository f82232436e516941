"""Recipes: what a file may say, what a user may set, and the steps that come of it on a drive."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.benchmarks.recipe.recipe import load_recipe, parse_recipe
from blkreel.benchmarks.recipe.run_stream import longest_ns
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.benchmarks.recipe.values import Share, evaluate
from blkreel.common.errors import UsageError

GIB = 1 << 30
MIB = 1 << 20

TEXT = """
title = "t"
explain = "e"
report = "mixes"
[parameters.span]
kind = "size"
value = "64GiB"
quick = "1GiB"
scales = true
about = "where"
[parameters.tail]
kind = "size"
value = "25%"
about = "a share"
[parameters.mixes]
kind = "percents"
value = [100, 0]
about = "mixes"
[parameters.time]
kind = "time"
value = "60s"
about = "how long"
[regions]
data = "= span"
rest = "= tail"
[[steps]]
each = { state = ["full", "full+op25"], repeat = 2 }
  [[steps.steps]]
  do = "state"
  state = "= state"
  [[steps.steps]]
  each = { mix = "= mixes" }
    [[steps.steps.steps]]
    do = "measure"
    role = "mix"
    name = "reads-{mix}"
    time = "= time"
      [[steps.steps.steps.streams]]
      op = "write"
      read_percent = "= mix"
      block = "4K"
      region = "rest"
      part = "upper"
      depth = "= 2 * 2"
    [[steps.steps.steps]]
    do = "rest"
    time = "as-active"
"""


def recipe(text=TEXT, name="mine"):
    return parse_recipe(name, textwrap.dedent(text).encode())


def steps(text=TEXT, size_bytes=256 * GIB, given=None, **options):
    one = recipe(text)
    return steps_of(one, one.resolve(given or {}, **options), size_bytes=size_bytes, block_bytes=512, seed=1)


def test_loops_nest_and_label_their_steps():
    told = [(step.do, step.labels) for step in steps()]
    assert [do for do, _ in told] == ["state", "measure", "rest", "measure", "rest"] * 4
    assert [labels for do, labels in told if do == "measure"] == [
        {"state": state, "repeat": repeat, "mix": mix}
        for state in ("full", "full+op25") for repeat in (1, 2) for mix in (100, 0)]
    assert len({step.id for step in steps()}) == 20
    assert [step.time_ns for step in steps()[:3]] == [None, 60 * 10**9, None]


def test_shares_and_regions_are_of_what_the_state_leaves():
    first, last = (next(step for step in steps() if step.measures and step.labels["state"] == state)
                   for state in ("full", "full+op25"))
    assert (first.streams[0].start_bytes, first.streams[0].span_bytes) == (64 * GIB + 32 * GIB, 32 * GIB)
    assert (last.streams[0].start_bytes, last.streams[0].span_bytes) == (64 * GIB + 24 * GIB, 24 * GIB)
    assert first.streams[0].depth == 4
    assert [step.streams[0].read_percent for step in steps() if step.measures][:2] == [100, 0]


def test_a_condition_leaves_steps_out_and_sizes_are_named_as_people_do():
    text = TEXT.replace('    do = "rest"\n', '    if = "= mix"\n    do = "rest"\n').replace(
        'name = "reads-{mix}"', 'name = "reads-{mix}-{size}"').replace(
        'each = { mix = "= mixes" }', 'each = { mix = "= mixes", size = "= sizes" }').replace(
        "[parameters.mixes]", '[parameters.sizes]\nkind = "sizes"\nvalue = ["512", "4K", "1MiB"]\nabout = "s"\n'
                              "[parameters.mixes]")
    made = steps(text)
    assert [step.title for step in made[:9]] == [
        "state full", "reads-100-512", "rest", "reads-100-4K", "rest", "reads-100-1M", "rest", "reads-0-512",
        "reads-0-4K"]
    assert made[3].labels["size"] == 4096


def test_each_step_draws_its_own_numbers_and_the_same_ones_again():
    seeds = [step.streams[0].seed for step in steps() if step.measures]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [step.streams[0].seed for step in steps() if step.measures]


def test_what_is_set_wins_over_quick_and_scale():
    one = recipe()
    assert one.resolve({})["span"] == 64 * GIB
    assert one.resolve({}, quick=True)["span"] == GIB
    assert one.resolve({}, scale=1 / 128)["span"] == 512 * MIB
    assert one.resolve({}, quick=True, scale=1 / 4096)["span"] == MIB  # not less than what it is a multiple of
    assert one.resolve({"span": "3MiB"}, quick=True, scale=0.5)["span"] == 3 * MIB
    assert one.resolve({"mixes": "70, 30%"})["mixes"] == [70, 30]
    assert one.resolve({}, scale=1 / 128)["tail"] == Share(250_000)


@pytest.mark.parametrize("given_words, said", [
    ({"spam": "1"}, "unknown parameter 'spam'"),
    ({"span": "many"}, "--set span=many: 'many' is not a size"),
    ({"time": "60"}, "no unit"),
    ({"mixes": "100,101"}, "more than 100 percent"),
])
def test_what_cannot_be_set_is_refused(given_words, said):
    with pytest.raises(UsageError, match=said) as error:
        recipe().resolve(given_words)
    assert error.value.remedy


def test_a_drive_that_is_too_small_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match=r"needs 85\.9 GB, the drive has 68\.7 GB usable") as error:
        steps(size_bytes=64 * GIB, given={"tail": "16GiB"})
    assert "--fit" in error.value.remedy
    assert steps(size_bytes=64 * GIB, scale=0.25)
    with pytest.raises(UsageError, match="is too small"):
        steps(given={"tail": "1KiB"}, text=TEXT.replace('block = "4K"', 'block = "2MiB"'))


@pytest.mark.parametrize("before, after, said", [
    ('report = "mixes"', 'report = "mixes"\nspam = 1', "unknown key spam"),
    ('report = "mixes"', "", "missing key report"),
    ('kind = "size"\nvalue = "25%"', 'kind = "sise"\nvalue = "25%"', "unknown kind sise"),
    ('value = [100, 0]', 'value = [100, 200]', "more than 100 percent"),
    ('do = "rest"', 'do = "sleep"', "invalid do = 'sleep'"),
    ('time = "as-active"', 'tome = "1s"', "unknown key tome"),
    ('region = "rest"', 'region = "moon"', "unknown region 'moon'"),
    ('time = "= time"', "", "would never end"),
    ('"= 2 * 2"', '"= two * 2"', "there is no two"),
    ('"= 2 * 2"', '"= __import__(2)"', "unsupported expression"),
    ('"= 2 * 2"', '"= span"', "invalid depth"),
    ('block = "4K"', 'block = "1000B"', "block size"),
    ('op = "write"', 'op = "scribble"', "invalid op 'scribble'"),
    ('name = "reads-{mix}"', 'name = "reads-{mux}"', "unknown loop variable"),
    ('state = "= state"', "", "a state step: missing key state"),
    ('each = { mix = "= mixes" }', 'each = { mix = "often" }', "the loop over mix has no values"),
])
def test_a_recipe_that_is_wrong_says_where(before, after, said):
    assert before in TEXT
    with pytest.raises(UsageError, match=said) as error:
        steps(TEXT.replace(before, after))
    assert error.value.remedy


def test_a_recipe_that_is_no_file_or_no_toml(tmp_path):
    with pytest.raises(UsageError, match="no such test: mixed-brust") as error:
        load_recipe("mixed-brust")
    assert "mixed-burst" in error.value.remedy
    with pytest.raises(UsageError, match="cannot read"):
        load_recipe(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(UsageError, match="is not valid TOML"):
        load_recipe(str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        load_recipe(str(tmp_path / "bad.toml"))


@given(st.integers(0, 10**15), st.integers(1, 10**9), st.integers(0, 10**9))
def test_sums_are_worked_out_in_whole_numbers(a, b, c):
    names = {"a": a, "b": b, "c": c, "list": [a, b, c]}
    assert evaluate("a + b * c - c % b", names) == a + b * c - c % b
    assert evaluate("(a + c) // b", names) == (a + c) // b
    assert evaluate("max(list) + min(a, b) + len(list) + sum(list)", names) == (
        max(a, b, c) + min(a, b) + 3 + a + b + c)


@given(st.text(max_size=30))
def test_no_sum_reaches_anything_but_its_names(text):
    try:
        value = evaluate(text, {"a": 1})
    except UsageError:
        return
    assert isinstance(value, int)


def test_how_long_it_takes_at_most_is_known_but_for_states():
    # Four states, two mixes of 60 s after each, and a rest as long behind each mix.
    assert longest_ns(steps()) == (4 * 2 * 2 * 60 * 10**9, 4)
    one = load_recipe("mixed-burst")
    made = steps_of(one, one.resolve({}), size_bytes=512 * GIB, block_bytes=512, seed=1)
    # The last of ten reads begins 30 s + 9 x 6.2 s after the start, in both runs; how long it takes is the drive's.
    assert longest_ns(made) == (2 * 85_800_000_000, 1)
