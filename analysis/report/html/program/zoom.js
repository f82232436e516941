import { all, element } from "./data.js";
import { change, put, state, onChange } from "./state.js";
import { chartOf } from "./charts.js";

// Fields and buttons below a chart that zooms: the same by keyboard as by dragging across its strip. Not in the
// chart itself: paper and a page without scripts cannot zoom.

function field(text, name, bounds) {
  const input = element("input", { type: "number", name, min: bounds.low, max: bounds.high, step: "any" });
  return [element("label", {}, `${text} `, input), input];
}

function controls(place) {
  const { id, zooms: bounds } = chartOf(place.dataset.chart);
  if (!bounds) return;
  const title = document.getElementById(`${id}-title`).firstChild.textContent.trim();
  const [fromLabel, from] = field("From", "from", bounds);
  const [toLabel, to] = field("to", "to", bounds);
  const range = () => state.zooms[id] ?? [bounds.low, bounds.high];
  const set = (low, high) => {
    const cut = [Math.max(bounds.low, low), Math.min(bounds.high, high)];
    const whole = cut[0] <= bounds.low && cut[1] >= bounds.high;
    if (cut[0] < cut[1]) change({ zooms: put(state.zooms, id, whole ? null : cut) });
    show();
  };
  const scaled = (factor) => {
    const [low, high] = range();
    const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
    set(middle - half, middle + half);
  };
  const moved = (share) => {
    const [low, high] = range();
    const by = Math.max(bounds.low - low, Math.min(bounds.high - high, (high - low) * share));
    set(low + by, high + by);
  };
  const button = (sign, label, act) => {
    const made = element("button", { type: "button", textContent: sign, onclick: act });
    made.setAttribute("aria-label", label);
    return made;
  };
  const whole = button("Whole", `Show all of ${title}`, () => set(bounds.low, bounds.high));
  const show = () => {
    const [low, high] = range();
    [from.value, to.value] = [+low.toPrecision(5), +high.toPrecision(5)];
    whole.disabled = !state.zooms[id];
  };
  for (const input of [from, to]) input.addEventListener("change", () => set(Number(from.value), Number(to.value)));
  const group = element("div", { className: "zoom" }, fromLabel, toLabel,
    button("←", "Earlier", () => moved(-0.5)), button("→", "Later", () => moved(0.5)),
    button("+", "Zoom in", () => scaled(0.5)), button("−", "Zoom out", () => scaled(2)), whole,
    element("span", { textContent: "or drag across the strip above" }));
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", `Zoom of ${title}`);
  place.after(group);
  onChange((view, changed) => { if (changed.has("zooms")) show(); });
  show();
}

export function startZoom() {
  for (const place of all("[data-zooms]")) controls(place);
}
