"""One figure of each drive against another, each dot with its name."""

from .parts import MOST_HUES, ROLE_COLOUR, by_role, finished, role, tooltip


def scatter(description: str, rows: list[dict], order: list[str], x: tuple, y: tuple) -> dict:
    """rows: {"entry", "name", "x", "y", "text"}. x, y: (title, unit). Both axes begin at zero."""
    values = [{**row, "place": order.index(row["entry"])} for row in rows]
    named = 1 if len(order) <= MOST_HUES else 0
    scale = {"zero": True, "nice": True}
    at = {name: {"field": name, "type": "quantitative", "title": ", ".join(words), "scale": scale,
                 "axis": {"tickCount": 6}}
          for name, words in (("x", x), ("y", y))}
    layers = [
        {"mark": {"type": "point", "filled": True, "opacity": 1},
         "encoding": {**at, "color": ROLE_COLOUR if not named else _COLOUR, "size": by_role(150, 90, 70),
                      "tooltip": tooltip(("name", "drive"), ("text", "figures"))}},
        {"mark": {"type": "text", "align": {"expr": "scale('x', datum.x) > width / 2 ? 'right' : 'left'"},
                  "dx": {"expr": "scale('x', datum.x) > width / 2 ? -9 : 9"}, "fontSize": 11,
                  "dy": {"expr": "(datum.place % 3 - 1) * 11"}},
         "encoding": {**at, "text": {"field": "name", "type": "nominal"}, "opacity": by_role(1, 1, named)}}]
    return finished(description, height=250, data={"values": values}, transform=[role(order)], layer=layers)


_COLOUR = {"condition": {"test": "datum.role === 'this'", "value": {"expr": "accent"}}, "value": {"expr": "plain"}}
