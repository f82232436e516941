"""Values that the shell completes: traces, drives, states, benchmarks, metrics and paces (packaging/completion).

Each function has the signature of click's shell_complete. Imports are inside: a command that runs needs none of them.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

Items = list[CompletionItem]
_FILES = [CompletionItem("", type="file")]


def _matching(incomplete: str, values: Iterable[str | Sequence[str]]) -> Items:
    """Items for the values that begin with the incomplete word; a pair is a value and its description."""
    pairs = ((value, None) if isinstance(value, str) else value for value in values)
    return [CompletionItem(value, help=about) for value, about in pairs if value.startswith(incomplete)]


def _values(name: str) -> Any:
    from .completion_table import table

    return table()["values"][name]


def traces(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Files, and the names of the sample traces."""
    samples = _matching(incomplete, _values("samples"))
    return samples if incomplete.startswith("sample:") else [*samples, *_FILES]


def drives(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Drives with their model, simulated drives, and files. For --on also after the number of a device, as in 0=."""
    from blkreel.common.device import list_drives

    number = re.match(r"\d+=", incomplete)
    prefix = number[0] if number else ""
    items = _matching(incomplete, [(f"{prefix}{drive.path}", drive.model or drive.kind) for drive in list_drives()])
    if "nil:".startswith(incomplete[len(prefix):]) and incomplete[len(prefix):]:
        items += _matching(incomplete, [(f"{prefix}nil:", "no drive")])
    if incomplete.startswith(f"{prefix}nil:"):
        from blkreel.replay.simulated.spec import typical_drives

        items += _matching(incomplete, [(f"{prefix}nil:{name}", drive["title"])
                                        for name, drive in typical_drives().items()])
    return items or _FILES


def states(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return _matching(incomplete, _values("states"))


def benchmarks(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of the published benchmarks, and files."""
    return _matching(incomplete, _values("benchmarks")) or _FILES


def parameters(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Parameters of the benchmark that the command line names, as NAME=."""
    # click leaves the arguments in ctx.args while the option before the cursor has no value.
    words = (ctx.params.get("name"), *ctx.args)
    return _matching(incomplete, (pair for name, pairs in _values("parameters").items() if name in words
                                  for pair in pairs))


def metrics(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Keys of metrics, as --figure and --fail-if take them."""
    return _matching(incomplete, _values("metrics"))


def paces(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return _matching(incomplete, (("original", "as captured"), ("paced", "as captured, with at most as many in flight"),
                                  ("dependent", "after the I/Os that each one waited for"),
                                  ("asap", "as fast as possible"), ("depth=", "always N in flight"),
                                  ("x2", "twice as fast")))


def idle_policies(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return _matching(incomplete, (("original", "as captured"), ("cap=", "shorten longer gaps"),
                                  ("none", "no idle time")))


def mappings(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return _matching(incomplete, (("identity", "same offsets"), ("compact", "remove unused ranges"),
                                  ("wrap", "modulo the target size"), ("scale", "stretch or shrink to the target size"),
                                  ("tile", "copies side by side")))
