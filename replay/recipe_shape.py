"""Whether a recipe's tables, lists and texts stand where they belong, before anything is made of what they say."""

from blkreel.traces.errors import UsageError

_WORDS = {dict: "a table", list: "a list", str: "text", bool: "true or false"}
_TEXTS = {"step": ("name", "until_steady"), "stream": ("name", "part"), "parameter": ("kind", "about")}


def check_shape(recipe: str, told: dict) -> None:
    """Raises UsageError that names the first place where something else is expected. told: as TOML gives it."""
    def expect(kind, value, where):
        if not isinstance(value, kind):
            raise UsageError(f"{recipe}: {where} is not {_WORDS[kind]}", "docs/tests.md tells how a recipe is written")
        return value

    def texts(what, table, where):
        for key in _TEXTS[what]:
            expect(str, table.get(key, ""), f"{key} of {where}")

    def check_steps(steps, where):
        for number, step in enumerate(expect(list, steps, where), 1):
            here = f"step {number} of {where}"
            expect(dict, step, here)
            expect(dict, step.get("each", {}), f"each of {here}")
            texts("step", step, here)
            if "steps" in step:
                check_steps(step["steps"], here)
            for name in expect(list, step.get("regions", []), f"regions of {here}"):
                expect(str, name, f"a region of {here}")
            for stream in expect(list, step.get("streams", []), f"streams of {here}"):
                expect(dict, stream, f"a stream of {here}")
                texts("stream", stream, f"a stream of {here}")
                expect(dict, stream.get("bursts", {}), f"bursts of {here}")
                expect(bool, stream.get("background", False), f"background of {here}")

    for key in ("title", "explain", "report"):
        expect(str, told[key], key)
    for name, one in expect(dict, told.get("parameters", {}), "parameters").items():
        texts("parameter", expect(dict, one, f"parameter {name}"), f"parameter {name}")
        expect(bool, one.get("scales", False), f"scales of parameter {name}")
    expect(dict, told.get("regions", {}), "regions")
    check_steps(told["steps"], "the recipe")
