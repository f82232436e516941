"""What `blkreel test` prints before it runs: the list of benchmarks, one explained, its steps on a drive."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from blkreel.benchmarks.recipe.recipe import Recipe, load_recipe, recipe_names
from blkreel.benchmarks.recipe.run_stream import longest_ns
from blkreel.benchmarks.recipe.values import format_value
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.common.console import print_table
from blkreel.common.files.json_file import print_json
from blkreel.common.units import format_bytes, format_ns
from blkreel.replay.drive.target import Target
from blkreel.replay.prepare.states import about
from blkreel.replay.streams.spec import StreamSpec


def list_tests(as_json: bool) -> None:
    recipes = [load_recipe(name) for name in recipe_names()]
    if as_json:
        print_json({"version": 1, "tests": [{"name": recipe.name, "title": recipe.title,
                                             "explain": recipe.summary} for recipe in recipes]})
        return
    for recipe in recipes:
        print(f"{_wrapped(f'{recipe.name}: {recipe.title}')}\n{_wrapped(recipe.summary, '    ')}\n")
    print("list its parameters: blkreel test NAME --explain")
    print("list its steps:      blkreel test NAME --on DEVICE --dry-run")


def _wrapped(text: str, indent: str = "") -> str:
    width = min(110, shutil.get_terminal_size((110, 24)).columns)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


def explain(recipe: Recipe, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [{"name": name, "value": parameter.format(parameter.value),
             "quick": parameter.format(parameter.quick) if parameter.quick is not None else None,
             "kind": parameter.kind, "scales": parameter.scales, "about": parameter.about}
            for name, parameter in recipe.parameters.items()]
    if as_json:
        print_json({"version": 1, "name": recipe.name, "title": recipe.title, "explain": recipe.summary,
                    "parameters": rows})
        return
    print(f"{_wrapped(f'{recipe.name}: {recipe.title}')}\n\n{_wrapped(recipe.summary)}\n")
    print_table(dict.fromkeys(("parameter", "value", "quick", "description"), "left"),
                [(row["name"], row["value"], row["quick"] or "", row["about"]) for row in rows])
    print("\nset a parameter: --set NAME=VALUE (lists with commas; sizes also in percent of the drive, such as 25%)")


def show_steps(recipe: Recipe, values: Mapping[str, Any], steps: Sequence[BenchmarkStep], target: Target, scale: float,
               as_json: bool) -> None:
    if as_json:
        print_json({"version": 1, "dry_run": True, "test": recipe.name, "device": str(target.path),
                    "scale": scale, "steps": [_entry(step) for step in steps]})
        return
    scaled = f", sizes scaled by {scale:.3g}" if scale < 1 else ""
    print(f"would run {recipe.name} on {target.path}{scaled}; dry run, nothing written")
    for name, value in values.items():
        print(f"  {name} = {recipe.parameters[name].format(value)}")
    if words := time_words(steps):
        print(f"duration {words}")
    for step in steps:
        until = f"; until {format_ns(step.time_ns)}" if step.do == "measure" and step.time_ns else ""
        print(f"{step.id:<28} {'; '.join(_lines(step))}{until}")


def time_words(steps: Sequence[BenchmarkStep]) -> str:
    """`at most 22 min 0 s, plus 1 step without a time limit`; "" if no step has one."""
    known_ns, unknown = longest_ns(list(steps))
    if not known_ns:
        return ""
    besides = f", plus {unknown} {'step' if unknown == 1 else 'steps'} without a time limit" if unknown else ""
    return f"at most {format_ns(known_ns)}{besides}"


def _entry(step: BenchmarkStep) -> dict[str, Any]:
    return {"id": step.id, "do": step.do, "title": step.title, "role": step.role, "labels": step.labels,
            "state": step.state or None, "time_ns": step.time_ns, "trace": step.trace or None,
            "streams": [{"name": s.name, "op": s.op, "read_percent": s.read_percent, "access": s.access,
                         "block_bytes": s.block_bytes, "start_bytes": s.start_bytes, "span_bytes": s.span_bytes,
                         "depth": s.depth, "volume_bytes": s.volume_bytes, "background": s.background}
                        for s in step.streams]}


def _lines(step: BenchmarkStep) -> list[str]:
    if step.do == "state":
        spans = (f" ({', '.join(format_bytes(end - start) for start, end in step.spans)})"
                 if step.state.partition("+")[0] == "data" else "")
        return [f"put the drive into the state {step.state}: {about(step.state)}{spans}"]
    if step.do == "rest":
        return [f"rest {'for the duration of the previous step' if step.time_ns is None else format_ns(step.time_ns)}"]
    if step.do == "replay":
        return [f"replay {step.trace} at {step.pace} pace, idle {step.idle}"]
    return [_stream(stream) for stream in step.streams]


def _stream(stream: StreamSpec) -> str:
    mix = {0: stream.op + "s", 100: "reads"}.get(stream.read_percent, f"{stream.read_percent} % reads")
    sizes = {"extents": (), "random-sizes": stream.lengths_bytes}.get(stream.access, (stream.block_bytes,))
    access = [" to ".join(format_value("size", size) for size in sizes), stream.access.removesuffix("-sizes")]
    words = [f"{stream.name}: {' '.join(filter(None, access))} {mix} at depth {stream.depth}"]
    if stream.access == "extents":
        words.append(f"{len(stream.lengths_bytes)} extents, {format_bytes(sum(stream.lengths_bytes))}")
    else:
        words.append(f"over {format_bytes(stream.span_bytes)}")
    if stream.bursts:
        count = f"{stream.bursts.count} times " if stream.bursts.count else ""
        words.append(f"{count}{format_bytes(stream.bursts.bytes)} every {format_ns(stream.bursts.every_ns)}")
    if stream.rate_iops:
        words.append(f"{stream.rate_iops:g} IOPS")
    if stream.volume_bytes:
        words.append(f"until {format_bytes(stream.volume_bytes)}")
    if stream.background:
        words.append("in the background")
    return ", ".join(words)
