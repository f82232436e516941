"""What `blkreel test` would do, for people: the list of tests, one explained, its steps on a drive."""

import json
import textwrap

from rich.table import Table

from blkreel.cli.console import Console
from blkreel.replay.recipe import load_recipe, recipe_names
from blkreel.replay.recipe_words import shown
from blkreel.replay.rule_stream import longest_ns
from blkreel.replay.states import about
from blkreel.traces.units import format_bytes, format_ns

_WIDTH = 110


def list_tests(as_json: bool) -> None:
    recipes = [load_recipe(name) for name in recipe_names()]
    if as_json:
        print(json.dumps({"version": 1, "tests": [{"name": recipe.name, "title": recipe.title,
                                                   "explain": recipe.summary} for recipe in recipes]}))
        return
    for recipe in recipes:
        print(f"{recipe.name}: {recipe.title}")
        print(textwrap.fill(recipe.summary, _WIDTH, initial_indent="    ", subsequent_indent="    "))
        print()
    print("parameters of one: blkreel test NAME --explain")
    print("its steps on a drive: blkreel test NAME --on DEVICE --dry-run")


def explain(recipe, as_json: bool) -> None:
    rows = [{"name": name, "value": one.shown(one.value), "quick": one.shown(one.quick) if one.quick is not None
             else None, "kind": one.kind, "scales": one.scales, "about": one.about}
            for name, one in recipe.parameters.items()]
    if as_json:
        print(json.dumps({"version": 1, "name": recipe.name, "title": recipe.title, "explain": recipe.summary,
                          "parameters": rows}))
        return
    print(f"{recipe.name}: {recipe.title}\n")
    print(textwrap.fill(recipe.summary, _WIDTH))
    print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("parameter", "value", "quick", "what it is"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["value"], row["quick"] or "", row["about"])
    Console().print(table)
    print("\nset one with --set NAME=VALUE; lists with commas; sizes may be shares of the drive, as 25%")


def show_steps(recipe, settled, steps, target, scale: float, as_json: bool) -> None:
    """touches nothing"""
    entries = [_entry(step) for step in steps]
    if as_json:
        print(json.dumps({"version": 1, "dry_run": True, "test": recipe.name, "device": str(target.path),
                          "scale": scale, "steps": entries}))
        return
    shrunk = f", its sizes shrunk to {scale:.3g} of the method's" if scale < 1 else ""
    print(f"would carry {recipe.name} out on {target.path}{shrunk}; nothing touched")
    for name, value in settled.items():
        print(f"  {name} = {recipe.parameters[name].shown(value)}")
    if words := time_words(steps):
        print(f"it takes {words}")
    for step, entry in zip(steps, entries, strict=True):
        print(f"{step.id:<28} {'; '.join(_lines(step))}{_until(entry)}")


def time_words(steps) -> str:
    """`at most 22 min 0 s, besides 1 step without a time`; "" where none has one."""
    known_ns, unknown = longest_ns(steps)
    if not known_ns:
        return ""
    besides = f", besides {unknown} {'step' if unknown == 1 else 'steps'} without a time" if unknown else ""
    return f"at most {format_ns(known_ns)}{besides}"


def _entry(step) -> dict:
    return {"id": step.id, "do": step.do, "title": step.title, "role": step.role, "labels": step.labels,
            "state": step.state or None, "time_ns": step.time_ns, "trace": step.trace or None,
            "streams": [{"name": s.name, "op": s.op, "read_percent": s.read_percent, "access": s.access,
                         "block_bytes": s.block_bytes, "start_bytes": s.start_bytes, "span_bytes": s.span_bytes,
                         "depth": s.depth, "volume_bytes": s.volume_bytes, "background": s.background}
                        for s in step.streams]}


def _until(entry) -> str:
    return f"; until {format_ns(entry['time_ns'])}" if entry["do"] == "measure" and entry["time_ns"] else ""


def _lines(step) -> list[str]:
    if step.do == "state":
        spans = (f" ({', '.join(format_bytes(end - start) for start, end in step.spans)})"
                 if step.state.partition("+")[0] == "data" else "")
        return [f"put the drive into the state {step.state}: {about(step.state)}{spans}"]
    if step.do == "rest":
        return [f"rest {'as long as the step before took' if step.time_ns is None else format_ns(step.time_ns)}"]
    if step.do == "replay":
        return [f"replay {step.trace} at {step.pace} pace, idle {step.idle}"]
    return [_stream(stream) for stream in step.streams]


def _stream(stream) -> str:
    mix = {0: stream.op + "s", 100: "reads"}.get(stream.read_percent, f"{stream.read_percent} % reads")
    blocks = "" if stream.access == "extents" else f"{shown('size', stream.block_bytes)} "
    words = [f"{stream.name}: {blocks}{stream.access} {mix} at depth {stream.depth}"]
    if stream.access == "extents":
        words.append(f"{len(stream.lengths_bytes)} of them, {format_bytes(sum(stream.lengths_bytes))}")
    else:
        words.append(f"over {format_bytes(stream.span_bytes)}")
    if stream.bursts:
        count = f"{stream.bursts.count} times " if stream.bursts.count else ""
        words.append(f"{count}{format_bytes(stream.bursts.bytes)} every {format_ns(stream.bursts.every_ns)}")
    if stream.rate_iops:
        words.append(f"{stream.rate_iops:g} a second")
    if stream.volume_bytes:
        words.append(f"until {format_bytes(stream.volume_bytes)}")
    if stream.background:
        words.append("in the background")
    return ", ".join(words)
