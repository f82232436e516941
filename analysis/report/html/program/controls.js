import { all, data, element, entries, one, say } from "./data.js";
import { INITIAL, change, put, state, onChange } from "./state.js";
import { neighbors, visible } from "./visible.js";
import { allDrawn, picture } from "./charts.js";
import { copy, download, downloadText } from "./csv.js";

// What the reader chooses with: drive under test, neighbors, filters, search, colors; and buttons of the charts.

function values(fact) {
  const counts = new Map();
  for (const entry of entries.values()) {
    const value = entry.facts[fact] ?? "";
    counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
}

function fillFilters() {
  for (const group of all("[data-filter]")) {
    const fact = group.dataset.filter;
    for (const [value, count] of values(fact)) {
      const box = element("input", { type: "checkbox", value });
      box.addEventListener("change", () => {
        const chosen = all("input:checked", group).map((each) => each.value);
        change({ filters: put(state.filters, fact, chosen.length ? chosen : null) });
      });
      group.append(element("label", {}, box, ` ${value || "unknown"} `, element("span", { className: "amount", textContent: `(${count})` })));
    }
  }
}

function show(view) {
  document.documentElement.toggleAttribute("data-theme", view.theme !== "auto");
  if (view.theme !== "auto") document.documentElement.dataset.theme = view.theme;
  one(`input[name="theme"][value="${view.theme}"]`).checked = true;
  const search = one("#search");
  if (search && search.value.trim() !== view.search) search.value = view.search;
  if (!one("#highlight")) return;
  one("#highlight").value = view.highlight;
  const { keys } = visible(view);
  const near = one("#near");
  near.textContent = view.near ? `Show all ${entries.size}` : "Only its neighbors";
  near.disabled = !view.near && !view.highlight;
  near.title = near.disabled ? "Choose the drive under test first" : "Ranks around it, its predecessor and rivals";
  let set = 0;
  for (const group of all("[data-filter]")) {
    const chosen = view.filters[group.dataset.filter] ?? [];
    set += chosen.length;
    for (const box of all("input", group)) box.checked = chosen.includes(box.value);
  }
  if (one("#filters-set")) one("#filters-set").textContent = set ? ` (${set})` : "";
  one("#reset").hidden = !set && !view.near && !view.search;
  one("#status").textContent = keys.size === entries.size ? `${entries.size} drives` : `${keys.size} of ${entries.size} drives shown`;
}

function startSearch() {
  const search = one("#search");
  let waiting;
  search?.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change({ search: search.value.trim() }), 120);
  });
}

function startHighlight() {
  one("#highlight").addEventListener("change", (event) => {
    const highlight = event.target.value;
    change({ highlight, ...(highlight ? {} : { near: false }) });
  });
  one("#near").addEventListener("click", () => change({ near: !state.near }));
  one("#reset").addEventListener("click", () => {
    change({ near: false, filters: INITIAL.filters, search: "" });
    one("#search").focus();
  });
  document.addEventListener("click", (event) => {
    const row = event.target.closest?.("button.name")?.closest("tr");
    if (row) change({ highlight: row.dataset.entry === state.highlight ? "" : row.dataset.entry });
  });
  document.addEventListener("click", (event) => {
    const open = one(".filters[open]");
    if (open && !open.contains(event.target)) open.open = false;
  });
  one(".filters")?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.currentTarget.open = false;
    one("summary", event.currentTarget).focus();
  });
}

function chartButtons() {
  for (const place of all("[data-chart]")) {
    const id = place.dataset.chart;
    const title = one(`#${CSS.escape(id)}-title`).firstChild.textContent.trim();
    const make = (text, save) => {
      const made = element("button", { type: "button", textContent: text, onclick: () => picture(id, text.toLowerCase()).then(save, (error) => say(`No picture: ${error.message}`)) });
      made.setAttribute("aria-label", `Save as ${text}: ${title}`);
      return made;
    };
    one(".behind", place.closest(".card")).before(element("div", { className: "tools save" },
      make("SVG", (text) => downloadText(`${id}.svg`, "image/svg+xml", text)),
      make("PNG", (address) => download(`${id}.png`, address))));
  }
}

export function startControls() {
  fillFilters();
  startSearch();
  if (one("#highlight")) startHighlight();
  for (const radio of all('input[name="theme"]')) radio.addEventListener("change", () => change({ theme: radio.value }));
  one("#copy-link").addEventListener("click", () => copy(location.href, "the link to this view"));
  one("#print").addEventListener("click", () => allDrawn().then(() => window.print()));
  chartButtons();
  onChange(show);
  show(state);
}
