"""The page of a test's results: its tables, and a chart with its table for each series."""

from .. import numbers
from ..page import Drawing, render
from .drawn import by_op, chart, lines
from .shown import drive_line, parameter_words, shown


def results_page(document: dict) -> str:
    """The page as HTML that needs nothing else."""
    drawing, drawn = Drawing(), []
    for index, series in enumerate(document["series"]):
        spec = chart(series)
        if spec is not None:
            of_series, unit = lines(series)
            drawn.append({"chart": drawing.add(f"series-{index}", spec), "title": series["title"],
                          "by_op": by_op(series), "x": series["x"], "y": {**series["y"], "unit": unit},
                          "lines": [{**line, "points": [(numbers.digits(x) if isinstance(x, float) else f"{x:,}",
                                                         numbers.digits(y))
                                                        for x, y in zip(line["x"], line["y"], strict=True)]}
                                    for line in of_series]})
    shown_as = document["parameters_shown"]
    parameters = [(name.replace("_", " "), shown_as.get(name) or parameter_words(value))
                  for name, value in document["parameters"].items()]
    return render("test.html.j2", drawing, doc={**document, "kind": "report"}, title=document["title"],
                  drive=drive_line(document), tables=[shown(table) for table in document["tables"] if table["rows"]],
                  drawn=drawn, parameters=parameters)
