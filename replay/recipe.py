"""Recipes: the published tests as files of data, and their parameters as a user sets them.

docs/tests.md tells the keys of a recipe. replay/recipe_steps.py makes the steps of one for a drive.
"""

import hashlib
import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from blkreel.traces.errors import UsageError

from .recipe_shape import check_shape
from .recipe_words import KINDS, Share, is_list, read_value, shown

RECIPES = Path(__file__).with_name("recipes")
_ALIGN_BYTES = 1 << 20
_KEYS = {"title", "explain", "report", "parameters", "regions", "steps"}
_PARAMETER_KEYS = {"kind", "value", "quick", "scales", "align", "about"}


@dataclass(frozen=True)
class Parameter:
    """value, quick: as read; quick None where the quick test has the same. scales: whether --fit shrinks it."""

    name: str
    kind: str
    value: object
    quick: object
    about: str
    scales: bool = False
    align_bytes: int = _ALIGN_BYTES

    def scaled(self, value, scale: float):
        if isinstance(value, list):
            return [self.scaled(one, scale) for one in value]
        if isinstance(value, Share):
            return value
        return max(1, int(value * scale) // self.align_bytes) * self.align_bytes

    def shown(self, value) -> str:
        return shown(self.kind, value)


@dataclass(frozen=True)
class Recipe:
    """What a file says. steps and regions are as TOML gives them. source: the file's text."""

    name: str
    title: str
    explain: str
    report: str
    sha256: str
    source: str = field(repr=False)
    steps: list = field(repr=False)
    regions: dict = field(repr=False)
    parameters: dict[str, Parameter] = field(repr=False)

    def settle(self, given: dict[str, str], *, quick: bool = False, scale: float = 1.0) -> dict:
        """The value of every parameter: as given, else for a quick test, else the method's; only the latter two scale.

        Raises UsageError for a parameter that there is none of, or a value that it does not take.
        """
        for name in given:
            if name not in self.parameters:
                raise UsageError(f"{self.name} has no parameter {name!r}",
                                 f"it has: {', '.join(self.parameters)} (blkreel test {self.name} --explain)")
        settled = {}
        for name, parameter in self.parameters.items():
            if name in given:
                try:
                    settled[name] = read_value(parameter.kind, given[name])
                except UsageError as error:
                    raise UsageError(f"--set {name}={given[name]}: {error.message}", error.remedy) from None
                continue
            value = parameter.quick if quick and parameter.quick is not None else parameter.value
            settled[name] = parameter.scaled(value, scale) if parameter.scales and scale < 1 else value
        return settled

    @cached_property
    def summary(self) -> str:
        return " ".join(self.explain.split())


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """One that ships, by its name, or a file. Raises UsageError where there is none or it is not a recipe."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    try:
        data = path.read_bytes()
    except OSError as error:
        if path.parent == RECIPES:
            raise UsageError(f"no such test: {name}", f"use one of: {', '.join(recipe_names())}, or a file NAME.toml"
                             ) from None
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a recipe: blkreel test --list") from None
    try:
        return parse_recipe(path.stem, data)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}", "docs/tests.md tells how a recipe is written") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8", "docs/tests.md tells how a recipe is written") from None


def parse_recipe(name: str, data: bytes) -> Recipe:
    """Raises UsageError, and what tomllib raises."""
    told = tomllib.loads(data.decode())
    _allow(name, told, _KEYS, required={"title", "explain", "report", "steps"})
    check_shape(name, told)
    parameters = {one: _parameter(name, one, words) for one, words in told.get("parameters", {}).items()}
    return Recipe(name, told["title"], told["explain"], told["report"], hashlib.sha256(data).hexdigest(),
                  data.decode(), told["steps"], told.get("regions", {}), parameters)


def _parameter(recipe, name, told) -> Parameter:
    where = f"{recipe}: parameter {name}"
    _allow(where, told, _PARAMETER_KEYS, required={"kind", "value", "about"})
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in ("capacity", "block_size"):
        raise UsageError(f"{where} has a name that it cannot have", "use small letters, digits and _")
    kind = told["kind"]
    if (kind.removesuffix("s") if is_list(kind) else kind) not in KINDS:
        raise UsageError(f"{where} is of no known kind: {kind}", f"use one of: {', '.join(KINDS)}, or a plural")
    if told.get("scales") and kind not in ("size", "sizes"):
        raise UsageError(f"{where} is no size, so it cannot scale", "leave out scales")
    try:
        value, quick = (None if text is None else read_value(kind, text)
                        for text in (told["value"], told.get("quick")))
        align_bytes = read_value("size", told.get("align", _ALIGN_BYTES))
        if not isinstance(align_bytes, int) or align_bytes < 1:
            raise UsageError(f"{told['align']!r} is nothing that a size can be a multiple of", "use a size like 1MiB")
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.remedy) from None
    return Parameter(name, kind, value, quick, told["about"], told.get("scales", False), align_bytes)


def _allow(where, told, keys, required=frozenset()) -> None:
    """Raise UsageError for a key that means nothing, or one that is missing."""
    if unknown := sorted(set(told) - keys):
        raise UsageError(f"{where} has a key that means nothing: {unknown[0]}", f"use: {', '.join(sorted(keys))}")
    if missing := sorted(required - set(told)):
        raise UsageError(f"{where} lacks {missing[0]}", "docs/tests.md tells how a recipe is written")
