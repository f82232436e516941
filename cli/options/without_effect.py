"""Options that have no effect beside others: each command's table of them, and the error for each.

An option that changes nothing must not be accepted in silence, least of all by a command that writes to a drive.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from blkreel.common.errors import UsageError

Values = Mapping[str, Any]  # of all parameters, by their names in Python
_ALWAYS = frozenset({"as_json", "quiet", "verbose"})


@dataclass(frozen=True)
class Rule:
    """Where `applies` is true, the options `refused` have no effect; of `taken`, all others than these.

    where: `replay` of the message `replay: --x has no effect with --list`. remedy: follows `leave it out`.
    """

    where: str
    applies: Callable[[Values], Any]
    refused: frozenset[str] = frozenset()
    taken: frozenset[str] | None = None
    remedy: str = ""

    def refuses(self, parameter: str) -> bool:
        if self.taken is not None:
            return parameter not in self.taken | _ALWAYS
        return parameter in self.refused


def _of(*names: str) -> frozenset[str]:
    return frozenset(names)


def _without(name: str) -> Callable[[Values], bool]:
    return lambda values: not values[name]


def _saturates(values: Values) -> bool:
    """Whether each stream has a pace without idle time. A pace of one stream only leaves the others at original."""
    paces = [pace.rpartition(":")[2] for pace in values["paces"]]
    return any(":" not in pace for pace in values["paces"]) and all(
        pace == "asap" or pace.startswith("depth=") for pace in paces)


def _state(values: Values) -> str:
    return str(values["name"]).partition("+")[0]


def _format(values: Values) -> str:
    """Of the report; empty if the terminal has it."""
    from blkreel.analysis.report.export import format_of

    return str(values["format_"] or (format_of(values["output"]) if values["output"] else ""))


_REPORT = (
    Rule("without -o", _without("output"), _of("force"), remedy="or add -o FILE"),
    Rule("without a page or a picture", lambda values: _format(values) not in ("html", "png", "svg"), _of("theme"),
         remedy="or add -o FILE.html"),
    Rule("without a picture", lambda values: _format(values) not in ("png", "svg"), _of("width"),
         remedy="or add -o FILE.svg"),
    Rule("on a format other than png", lambda values: _format(values) != "png", _of("scale"),
         remedy="or add -o FILE.png"),
)
_TELEMETRY = _of("power_command", "power_log", "power_sensor", "sample", "ocp_log")
_PAYLOAD = _of("compressible", "duplicates")

RULES: dict[str, tuple[Rule, ...]] = {
    "test": (
        Rule("with --list", lambda values: values["listed"], taken=_of("listed")),
        Rule("with --explain", lambda values: values["explained"], taken=_of("name", "explained")),
        # What test.json stores stays as it is: the steps before and after an interruption are of one test.
        Rule("with --resume", lambda values: values["resume"],
             taken=_of("resume", "device", "destroy", "why", "dry_run", "no_live") | _TELEMETRY,
             remedy="the test continues with the parameters in its test.json; for others start a new one with -o"),
    ),
    "replay": (
        Rule("with --pace asap or depth=N, which issue without idle time", _saturates, _of("idle")),
        Rule("without --repeat", _without("repeat"), _of("until_valid"), remedy="or add --repeat 6"),
        Rule("with --baseline, which replays with and without the writes",
             lambda values: values["baseline"] and not values["backgrounds"], _of("without")),
        Rule("without --background", _without("backgrounds"), _of("background_lead"),
             remedy="or add --background BACKGROUND"),
    ),
    "precondition": (
        Rule("on a state other than data", lambda values: _state(values) != "data", _of("spans"),
             remedy="or use --state data"),
        Rule("on a state other than trace", lambda values: _state(values) != "trace",
             _of("trace", "wanted_map", "of_trace"), remedy="or use --state trace"),
        Rule("on a state other than enterprise", lambda values: _state(values) != "enterprise", _of("permutation"),
             remedy="or use --state enterprise"),
        Rule("on the state fresh, which writes no data", lambda values: _state(values) == "fresh",
             _PAYLOAD | _of("seed")),
    ),
    "capture": (
        Rule("without a COMMAND", lambda values: not click.get_current_context().meta.get("blkreel.command"),
             _of("user"), remedy="or add the command after --"),
        Rule("with a source other than bpf", lambda values: values["source"] not in ("auto", "bpf"),
             _of("programs"), remedy="or use --source bpf"),
    ),
    "top": (
        Rule("with --once, which ends after one interval", lambda values: values["once"], _of("duration_ns")),
    ),
    "model": (
        Rule("without -o", _without("output"), _of("format_name"), remedy="or add -o FILE"),
        Rule("without --make-trace", _without("make_trace"), _of("ios", "public"),
             remedy="or add --make-trace OUT.parquet"),
    ),
    "report": (
        *_REPORT, Rule("without --frames", _without("frames"), _of("run", "start_ns", "process"),
                       remedy="or add --frames FILE"),
    ),
    "compare": _REPORT,
    "results history": (
        Rule("without -o", _without("output"), _of("theme"), remedy="or add -o FILE"),
        Rule("without -o or --junit", lambda values: not values["output"] and not values["junit"], _of("force"),
             remedy="or add -o FILE"),
    ),
    "check": (
        Rule("without --repair", _without("repairs"), _of("force", "public"), remedy="or add --repair"),
    ),
}


def refuse_without_effect(name: str, command: click.Command) -> click.Command:
    """Add the rules of a command to it, once: a given option that a rule refuses raises UsageError before any work."""
    callback = command.callback
    if name not in RULES or hasattr(callback, "rules"):
        return command
    assert callback is not None

    @functools.wraps(callback)
    def checked(*arguments: Any, **values: Any) -> Any:
        _refuse(click.get_current_context(), RULES[name])
        return callback(*arguments, **values)

    checked.rules = RULES[name]  # type: ignore[attr-defined]
    command.callback = checked
    return command


def _refuse(context: click.Context, rules: tuple[Rule, ...]) -> None:
    parameters = [parameter for parameter in context.command.params
                  if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE]
    for rule in rules:
        if not rule.applies(context.params):
            continue
        refused = [_written(parameter, context) for parameter in parameters if rule.refuses(str(parameter.name))]
        if refused:
            verb, word = ("has", "it") if len(refused) == 1 else ("have", "them")
            raise UsageError(f"{', '.join(refused)} {verb} no effect {rule.where}",
                             f"leave {word} out{f': {rule.remedy}' if rule.taken else f', {rule.remedy}'}"
                             if rule.remedy else f"leave {word} out")


def _written(parameter: click.Parameter, context: click.Context) -> str:
    """As the user wrote it: the argument itself, or the option."""
    if isinstance(parameter, click.Argument):
        return str(context.params[str(parameter.name)])
    off = parameter.secondary_opts if context.params[str(parameter.name)] is False else []
    return max(off or parameter.opts, key=len)
