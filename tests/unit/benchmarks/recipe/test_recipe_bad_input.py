"""Recipes and values that cannot be: one line that says what, never a traceback, never a test of nothing."""

import copy
import json
import tomllib

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.benchmarks.recipe.recipe import RECIPES, load_recipe, parse_recipe, recipe_names
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.replay.streams import generate

TELLS = {name: tomllib.loads((RECIPES / f"{name}.toml").read_text()) for name in recipe_names()}
JUNK = [None, "", 0, -1, 1.5, True, [], {}, ["a"], {"a": 1}, 10**30, "= nope", "= 1 +", "= states", "= 10**10", "64GB",
        "999%", "nonsense", "{x}", "{", "-5s", "5s", "\0", "= capacity * 100000", "= max(sizes)", "= 'a' * 3", "= [1]"]
WORDS = ["", "0", "-1", "1", "1.5", "nan", "inf", "101", "65537", "9" * 30, "nonsense", "0s", "1ns", "0%", "120%",
         "100%", "1000", "512", "1TB", "1PB", "a,b", ",", "1,", "0,0", "data", "fresh,full", "{x}", "= 1", "\0", "é"]


def places(node, at=()):
    if at:
        yield at
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in parts:
        yield from places(value, (*at, key))


PLACES = [(name, at) for name, told in TELLS.items() for at in places(told)]


def as_toml(node) -> str:
    """Enough of TOML for what recipes hold: everything in one line, which JSON's strings and lists allow."""
    if isinstance(node, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(value)}" for key, value in node.items()) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(as_toml, node)) + "]"
    return json.dumps(node)


def whole(told) -> bytes:
    return "\n".join(f"{json.dumps(key)} = {as_toml(value)}" for key, value in told.items()).encode()


def follow(recipe, given_words=None, *, quick=False, size_bytes=10**12):
    """All that happens with a recipe before a drive is opened."""
    values = recipe.resolve(given_words or {}, quick=quick)
    found = steps_of(recipe, values, size_bytes=size_bytes, block_bytes=512, seed=1)
    for stream in next((step.streams for step in found if step.streams), ()):
        next(generate.batches(stream, 10**9), None)
    return found


def assert_one_line(error: BlkreelError):
    assert error.message and "\n" not in error.message and "Error" not in error.message
    assert error.remedy


@cases(20)
@given(st.sampled_from(PLACES), st.sampled_from(JUNK), st.booleans(), st.sampled_from([10**12, 64 << 20]))
def test_a_recipe_with_something_wrong_anywhere(place, junk, quick, size_bytes):
    name, at = place
    told = copy.deepcopy(TELLS[name])
    node = told
    for key in at[:-1]:
        node = node[key]
    if junk is None:
        del node[at[-1]]
    else:
        node[at[-1]] = copy.deepcopy(junk)
    try:
        follow(parse_recipe(name, whole(told)), quick=quick, size_bytes=size_bytes)
    except BlkreelError as error:
        assert_one_line(error)
    except ValueError:
        assert "\0" in str(junk) or junk == 10**30


PARAMETERS = [(name, key) for name in recipe_names() for key in load_recipe(name).parameters]
# A parameter of each kind: the kind refuses most values, whatever the parameter.
OF_EACH_KIND = {load_recipe(name).parameters[key].kind: (name, key) for name, key in PARAMETERS}


def assert_refused_or_with_something_to_do(name, parameter, words):
    """Refused in one line, or a test in which every measuring step has something to do."""
    try:
        found = follow(load_recipe(name), {parameter: words})
    except UsageError as error:
        assert_one_line(error)
        return
    assert any(step.measures for step in found), f"{parameter}={words} measures nothing"
    for step in found[:4]:
        for stream in step.streams:
            assert generate.row_count(stream, step.time_ns) != 0, f"{parameter}={words}: {step.title} is empty"


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_a_parameter_of_each_kind_set_to_anything(kind):
    for words in WORDS:
        assert_refused_or_with_something_to_do(*OF_EACH_KIND[kind], words)


@cases(20)
@given(st.sampled_from(PARAMETERS), st.sampled_from(WORDS))
def test_any_parameter_set_to_anything(parameter, words):
    assert_refused_or_with_something_to_do(*parameter, words)


@pytest.mark.parametrize(("name", "words", "said"), [
    ("mixed-random", "depth=99999", "depth"), ("mixed-random", "time=0s", "longer time"),
    ("consistency", "span=120%", "1.20 TB"), ("consistency", "access=spiral", "spiral"), ("trim", "rate=0", "0"),
    ("trim", "sizes=600GB", "--fit"), ("slc-cache", "next_fill=30%", "--fit"), ("mixed-burst", "reads=0", "too small"),
    ("depth-sweep-read", "repeats=0", "repeat"), ("qd1", "blocks=", "blocks")])
def test_what_is_wrong_is_named(name, words, said):
    parameter, value = words.split("=")
    with pytest.raises(UsageError) as error:
        follow(load_recipe(name), {parameter: value})
    assert said in f"{error.value.message} {error.value.remedy}"


@pytest.mark.parametrize(("name", "words"), [
    ("mixed-random", {"mixes": "50,20,50"}), ("mixed-burst", {"states": "data,data"}),
    ("depth-sweep-read", {"depths": "4,4"}), ("slc-cache", {"rest_2": "30s"}), ("slc-cache", {"rest_1": "0s"}),
    ("qd1", {"blocks": "4096,4K"})])
def test_steps_that_a_result_could_not_tell_apart_are_refused(name, words):
    """Of two alike the figures would hold the last alone, or both as repeats that they are not."""
    with pytest.raises(UsageError, match="have the same role and labels") as error:
        follow(load_recipe(name), words)
    assert_one_line(error.value)


@pytest.mark.parametrize("name", recipe_names())
def test_several_states_and_repeats_are_told_apart(name):
    states = "fresh,full" if name in ("trace", "slc-cache") else "data,full+op25,full"
    assert follow(load_recipe(name), {"states": states, "repeats": "3"})
