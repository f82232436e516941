"""Recipes: benchmarks as TOML files, with parameters that a user can set.

docs/tests.md lists the keys of a recipe. benchmarks/recipe/steps.py expands a recipe into the steps for one drive.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.files.typed_document import parse_toml

from .values import KINDS, Share, Value, format_value, is_list, read_value

RECIPES = Path(__file__).parents[1] / "recipes"
SEE_DOCS = "see the keys of a recipe in docs/tests.md"
_ALIGN_BYTES = 1 << 20
_KEYS = {"title", "explain", "report", "parameters", "regions", "steps"}
_PARAMETER_KEYS = {"kind", "value", "quick", "scales", "align", "about"}
_TYPES = {dict: "a table", list: "a list", str: "text", bool: "true or false"}

Table = Mapping[str, Any]  # a table of TOML: check_types has checked its types, and the expansion checks its keys


@dataclass(frozen=True)
class Parameter:
    """value, quick: as parsed; quick is None if --quick uses the same value. scales: whether --fit shrinks it."""

    name: str
    kind: str
    value: Value
    quick: Value | None
    about: str
    scales: bool = False
    align_bytes: int = _ALIGN_BYTES

    def scaled(self, value: Value, scale: float) -> Value:
        """The size or sizes times scale, in multiples of align_bytes. A share of the drive scales with the drive."""
        if isinstance(value, list):
            return [self.scaled(item, scale) for item in value]
        if isinstance(value, Share):
            return value
        return max(1, int(value * scale) // self.align_bytes) * self.align_bytes

    def format(self, value: Value) -> str:
        return format_value(self.kind, value)


@dataclass(frozen=True)
class Recipe:
    """A parsed recipe file. steps and regions are tables as TOML gives them; source is the text of the file."""

    name: str
    title: str
    explain: str
    report: str
    sha256: str
    source: str = field(repr=False)
    steps: list[Table] = field(repr=False)
    regions: Table = field(repr=False)
    parameters: dict[str, Parameter] = field(repr=False)

    def resolve(self, overrides: Mapping[str, str], *, quick: bool = False, scale: float = 1.0) -> dict[str, Value]:
        """The value of each parameter: the override, else the quick value, else the default.

        Overrides do not scale. Raises UsageError for an unknown parameter or an invalid value.
        """
        for name in overrides:
            if name not in self.parameters:
                raise UsageError(f"{self.name}: unknown parameter {name!r}",
                                 did_you_mean(name, self.parameters, f"use one of: {', '.join(self.parameters)} "
                                              f"(blkreel test {self.name} --explain)"))
        values = {}
        for name, parameter in self.parameters.items():
            if name in overrides:
                try:
                    values[name] = read_value(parameter.kind, overrides[name])
                except UsageError as error:
                    raise UsageError(f"--set {name}={overrides[name]}: {error.message}", error.remedy) from None
                continue
            value = parameter.quick if quick and parameter.quick is not None else parameter.value
            values[name] = parameter.scaled(value, scale) if parameter.scales and scale < 1 else value
        return values

    @cached_property
    def summary(self) -> str:
        return " ".join(self.explain.split())


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def procedure_checksum(name: str, source: str) -> str:
    """Of what a recipe of that text does beside its parameters; "" of the built-in recipe of that name."""
    def checksum(text: str) -> str:
        try:
            table = parse_toml(text.encode())
        except ValueError:
            return hashlib.sha256(text.encode()).hexdigest()
        return hashlib.sha256(json.dumps([table.get("regions"), table.get("steps")], sort_keys=True, default=str)
                              .encode()).hexdigest()

    is_built_in = name in recipe_names() and checksum(source) == checksum((RECIPES / f"{name}.toml").read_text())
    return "" if is_built_in else checksum(source)


def load_recipe(name: str) -> Recipe:
    """Load a built-in recipe by its name, or a file NAME.toml. Raises UsageError for a missing or invalid recipe."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    try:
        data = path.read_bytes()
    except OSError as error:
        if path.parent == RECIPES:
            raise UsageError(f"no such test: {name}", did_you_mean(
                name, recipe_names(), f"use one of: {', '.join(recipe_names())}, or a file NAME.toml")) from None
        raise UsageError(f"cannot read {path}: {error.strerror}", "list the recipes: blkreel test --list") from None
    try:
        return parse_recipe(path.stem, data)
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", SEE_DOCS) from None


def parse_recipe(name: str, data: bytes) -> Recipe:
    """Raises UsageError, and ValueError for data that is not TOML."""
    table = parse_toml(data)
    check_keys(name, table, _KEYS, required={"title", "explain", "report", "steps"})
    _check_types(name, table)
    parameters = {key: _parameter(name, key, entry) for key, entry in table.get("parameters", {}).items()}
    return Recipe(name, table["title"], table["explain"], table["report"], hashlib.sha256(data).hexdigest(),
                  data.decode(), table["steps"], table.get("regions", {}), parameters)


def _parameter(recipe: str, name: str, table: Table) -> Parameter:
    where = f"{recipe}: parameter {name}"
    check_keys(where, table, _PARAMETER_KEYS, required={"kind", "value", "about"})
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in ("capacity", "block_size"):
        raise UsageError(f"{where}: invalid or reserved name", "use small letters, digits and _")
    kind = table["kind"]
    if (kind.removesuffix("s") if is_list(kind) else kind) not in KINDS:
        raise UsageError(f"{where}: unknown kind {kind}", f"use one of: {', '.join(KINDS)}, or a plural")
    if table.get("scales") and kind not in ("size", "sizes"):
        raise UsageError(f"{where}: only sizes can scale", "remove scales")
    try:
        value = read_value(kind, table["value"])
        quick = read_value(kind, table["quick"]) if "quick" in table else None
        align_bytes = read_value("size", table.get("align", _ALIGN_BYTES))
        if not isinstance(align_bytes, int) or align_bytes < 1:
            raise UsageError(f"invalid align: {table['align']!r}", "use a size like 1MiB")
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.remedy) from None
    return Parameter(name, kind, value, quick, table["about"], table.get("scales", False), align_bytes)


def check_keys(where: str, table: Table, keys: Collection[str], required: Collection[str] = ()) -> None:
    """Raises UsageError for an unknown or a missing key."""
    if unknown := sorted(set(table) - set(keys)):
        raise UsageError(f"{where}: unknown key {unknown[0]}",
                         did_you_mean(unknown[0], sorted(keys), f"use: {', '.join(sorted(keys))}"))
    if missing := sorted(set(required) - set(table)):
        raise UsageError(f"{where}: missing key {missing[0]}", SEE_DOCS)


def _check_types(recipe: str, table: Table) -> None:
    """Raises UsageError at the first value of a wrong TOML type. Scalars that steps.py evaluates are not checked."""
    def expect(kind: type, value: object, where: str) -> None:
        if not isinstance(value, kind):
            raise UsageError(f"{recipe}: {where} is not {_TYPES[kind]}", SEE_DOCS)

    def expect_keys(owner: Table, where: str, **kinds: type) -> None:
        expect(dict, owner, where)
        for key, kind in kinds.items():
            if key in owner:
                expect(kind, owner[key], f"{key} of {where}")

    def check_steps(steps: list[Table], where: str) -> None:
        for number, step in enumerate(steps, 1):
            label = f"step {number} of {where}"
            expect_keys(step, label, each=dict, name=str, until_steady=str, steps=list, regions=list, streams=list)
            check_steps(step.get("steps", []), label)
            for name in step.get("regions", []):
                expect(str, name, f"a region of {label}")
            for stream in step.get("streams", []):
                expect_keys(stream, f"a stream of {label}", name=str, part=str, bursts=dict, background=bool)

    expect_keys(table, "the recipe", title=str, explain=str, report=str, parameters=dict, regions=dict, steps=list)
    for name, parameter in table.get("parameters", {}).items():
        expect_keys(parameter, f"parameter {name}", kind=str, about=str, scales=bool)
    check_steps(table["steps"], "the recipe")
