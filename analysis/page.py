"""The HTML page of a report or a comparison: one file that needs nothing else."""

import json
import os
import re
from functools import cache
from pathlib import Path

import altair
import jinja2
import vl_convert

from blkreel.traces.writer import output_error, publish, refuse_existing

from . import certificate, charts, classes, columns, definitions, document, numbers, rendering
from .exhibits import model
from .theme import COLOURS, THEMES

_TEMPLATES = Path(__file__).with_name("templates")
HEADLINE_CHARTS = (("read_throughput_mb_s", True), ("wait_ns", False), ("read_service_ns", False))


def render_page(page: model.Page) -> str:
    """The page as HTML: everything it needs is inside, and nothing is loaded from anywhere."""
    return rendering.render(page)


class Drawing:
    """The charts of a page: `add` gives the id under which the page draws a specification."""

    def __init__(self):
        self.specs = {}

    def add(self, name: str, spec: dict | None) -> str | None:
        if spec is None:
            return None
        self.specs[name] = spec
        return name


def comparison_page(doc: dict, sections: list[document.Section]) -> str:
    drawing = Drawing()
    domain = list(dict.fromkeys(entry.shown["label"] for section in sections for entry in section.entries))
    views = [_section_view(drawing, f"s{index}", section, domain) for index, section in enumerate(sections)]
    entries = [entry.shown for section in sections for entry in section.entries]
    drives = list(dict.fromkeys(entry["label"] for entry in entries))
    title = f"{' · '.join(drives[:3])}{f' and {len(drives) - 3} more' if len(drives) > 3 else ''}"
    return _render("compare.html.j2", drawing, doc=doc, title=title, sections=views,
                   columns=columns.columns_of(entries), shared_reasons=_shared_reasons(entries),
                   sections_drawn=sections)


def report_page(doc: dict, section: document.Section) -> str:
    drawing = Drawing()
    entry = section.entries[0]
    view = _section_view(drawing, "s0", section, [entry.shown["label"]])
    view["sizes"] = {"chart": drawing.add("sizes", charts.sizes(entry)), "rows": charts.size_rows(entry)}
    view["heat"] = [(name, drawing.add(f"heat-{name}", charts.heat(entry, kind)), charts.places(entry, kind))
                    for kind, name in enumerate(("reads", "writes"))]
    view["iops"] = {"chart": drawing.add("iops", charts.iops(entry)), "rows": charts.iops_rows(entry)}
    run = entry.shown["runs"][0]["run"]
    view["certificate"] = {"rows": certificate.certificate_rows(run), "held_up": certificate.held_up_rows(run)}
    return _render("report.html.j2", drawing, doc=doc, title=entry.shown["label"], section=view, entry=entry.shown,
                   columns=columns.columns_of([entry.shown]), rows=classes.class_rows(entry.shown["figures"]),
                   threads=doc["threads"], sections_drawn=[section])


def write_page(path: Path, html: str, force: bool = False) -> Path:
    """Write the page; it stands under `path` only when it is whole. Raises OutputExists."""
    path = Path(path)
    refuse_existing(path, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(html, encoding="utf-8")
        publish(temporary, path, force)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _section_view(drawing, prefix, section, domain):
    """What the templates need of a section: its document, ids of charts, and the rows behind them."""
    entries = section.entries
    rankings = []
    for name, higher in HEADLINE_CHARTS:
        definition = definitions.HEADLINE[name]
        title = definition.title
        if name == "read_throughput_mb_s" and any(entry.shown["writer"] != "none" for entry in entries):
            title = "Read throughput under background writes"
        spec = charts.ranking(entries, name, title, domain, higher)
        rankings.append({"title": title, "definition": definition, "figure": name,
                         "better": "higher" if higher else "lower",
                         "chart": drawing.add(f"{prefix}-{name}", spec)})
    tails = []
    for key, kind, measure, what in (
            ("read-latency", "read", "latency", "read latency (from submit)"),
            ("read-response", "read", "response", "read response (from due)"),
            ("write-latency", "write", "latency", "write latency (from submit)")):
        named = [(entry, getattr(getattr(entry.partial, kind), measure)) for entry in entries]
        spec = charts.tail(named, domain, what)
        tails.append({"title": what[0].upper() + what[1:], "chart": drawing.add(f"{prefix}-{key}", spec),
                      "rows": [(entry.shown["label"], entry.shown["figures"][kind][measure]) for entry in entries]})
    lateness = []
    for side, what in (("host", "lateness caused by the host"), ("device", "lateness caused by a full queue")):
        named = [(entry, getattr(entry.partial, f"lateness_{side}")) for entry in entries]
        spec = charts.tail(named, domain, what, limits=side == "host")
        lateness.append({"title": what[0].upper() + what[1:], "chart": drawing.add(f"{prefix}-late-{side}", spec),
                         "rows": [(entry.shown["label"], entry.shown["figures"]["lateness"][side])
                                  for entry in entries]})
    return {
        **section.shown, "id": prefix, "rankings": rankings, "tails": tails, "lateness": lateness,
        "said": [(entry.shown["label"], sentence) for entry in entries if (sentence := columns.sentence(entry.shown))],
        "is_replay": any(entry.shown["runs"][0]["run"] for entry in entries),
        "timeline": drawing.add(f"{prefix}-timeline", charts.timeline(entries)),
        "timeline_rows": [(entry.shown["label"], charts.timeline_steps(entry.measured[0].timeline))
                          for entry in entries],
        "bin": numbers.setting(max(entry.measured[0].timeline.width_ns for entry in entries)),
    }


def _sources(sections):
    told = {}
    for section in sections:
        source = section.shown["source"]
        told.setdefault(source["sha256"] or source["path"], source)
    return list(told.values())


def _shared_reasons(entries):
    """Reasons that hold for every entry: said once, they leave room to see what sets one apart."""
    if len(entries) < 2:
        return []
    return [reason for reason in entries[0]["verdict"]["reasons"]
            if all(reason in entry["verdict"]["reasons"] for entry in entries[1:])]


def _parameters(sections):
    """(what, value): what else decides the figures, besides the formulas."""
    for section in sections:
        for entry in (each.shown for each in section.entries):
            runs = ", ".join(run["path"] for run in entry["runs"])
            idle = f"idle {columns.idle_words(entry['idle'])}; " if entry["idle"] else ""
            data = columns.payload_words(entry["payload"])
            data = f"data written {data}; " if data else ""
            yield f"{section.shown['title']}, {entry['label']}", f"{idle}{data}n={entry['n']}: {runs}"


def _render(template, drawing, doc, sections_drawn, **context) -> str:
    gap = numbers.setting(doc["parameters"]["burst_gap_ns"])
    return render(
        template, drawing, doc=doc, gap=gap, sources=_sources(sections_drawn),
        parameters=list(_parameters(sections_drawn)),
        figures_defined=definitions.FIGURES, preamble=definitions.PREAMBLE,
        decisions=[(name, text.format(gap=gap)) for name, text in definitions.DECISIONS], **context)


def render(template: str, drawing: Drawing, **context) -> str:
    """A template with the page's styles, its chart library and these charts."""
    return _environment().get_template(template).render(
        colours=COLOURS,
        styles=(_TEMPLATES / "page.css").read_text(), program=(_TEMPLATES / "page.js").read_text(),
        library=_library(), drawing=_script_json({"specs": drawing.specs, "themes": THEMES}), **context)


@cache
def _environment():
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"duration": numbers.duration, "digits": numbers.digits, "size": numbers.size,
                            "drive_words": columns.drive_words, "state_words": columns.state_words,
                            "idle_words": columns.idle_words}
    return environment


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, of the version that Altair writes for."""
    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    # Nothing in it may end the script element it stands in; other "</" are parts of regular expressions.
    return re.sub(r"</(?=script)", r"<\\/", vl_convert.javascript_bundle(vl_version=version), flags=re.IGNORECASE)


def _script_json(value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
