"""Suggestions for misspelled names."""

import pytest

from blkreel.common.errors import choice_remedy, did_you_mean

NAMES = ["replay", "report", "read_p99", "read_p90", "Client"]


@pytest.mark.parametrize("word, expected", [
    ("repaly", "did you mean 'replay'?"),
    ("client", "did you mean 'Client'?"),
    ("REPLAY", "did you mean 'replay'?"),
    ("p99", "did you mean 'read_p99'?"),
    ("zzz", "one of them"),
    ("", "one of them")])
def test_the_most_similar_names_come_first(word, expected):
    assert did_you_mean(word, NAMES, "one of them") == expected


@pytest.mark.parametrize("text, expected", [
    ("identiy", "did you mean 'identity'?"), ("tile=0x", "use identity or tile=N"), ("zzz", "use identity or tile=N")])
def test_a_wrong_value_lists_the_choices(text, expected):
    assert choice_remedy(text, ["identity", "tile"], "identity or tile=N") == expected
