import { data, entries } from "./data.js";
import { INITIAL, change, state } from "./state.js";

// The view as the part of the address behind "#", and back. A part without "=" is a heading, as in any page.

export function encoded(view) {
  const params = new URLSearchParams();
  if (view.highlight !== INITIAL.highlight) params.set("highlight", view.highlight);
  if (view.near) params.set("near", "1");
  for (const [fact, values] of Object.entries(view.filters)) {
    for (const value of values) params.append(`is.${fact}`, value);
  }
  if (view.search) params.set("search", view.search);
  for (const [table, [column, way]] of Object.entries(view.sorts)) params.set(`sort.${table}`, `${column}.${way}`);
  for (const [chart, range] of Object.entries(view.zooms)) params.set(`zoom.${chart}`, range.map((x) => +x.toPrecision(8)).join("~"));
  if (view.all.length) params.set("all", view.all.join("~"));
  if (view.open.length) params.set("open", view.open.join("~"));
  if (view.theme !== INITIAL.theme) params.set("theme", view.theme);
  if (view.at) params.set("at", view.at);
  return params.toString();
}

export function decoded(hash) {
  const text = hash.replace(/^#/, "");
  const view = { ...INITIAL };
  const params = new URLSearchParams(text && !text.includes("=") ? `at=${text}` : text);
  for (const [name, value] of params) {
    const [kind, ...rest] = name.split(".");
    const id = rest.join(".");
    if (name === "highlight" && (value === "" || entries.has(value))) view.highlight = value;
    else if (name === "near") view.near = value === "1";
    else if (kind === "is" && data.filters.includes(id)) view.filters = { ...view.filters, [id]: [...(view.filters[id] ?? []), value] };
    else if (name === "search") view.search = value;
    else if (kind === "sort" && /\.(up|down)$/.test(value)) {
      const cut = value.lastIndexOf(".");
      view.sorts = { ...view.sorts, [id]: [value.slice(0, cut), value.slice(cut + 1)] };
    } else if (kind === "zoom") {
      const range = value.split("~").map(Number);
      if (range.length === 2 && range.every(Number.isFinite) && range[0] < range[1]) view.zooms = { ...view.zooms, [id]: range };
    } else if (name === "all") view.all = value.split("~");
    else if (name === "open") view.open = value.split("~");
    else if (name === "theme" && ["light", "dark"].includes(value)) view.theme = value;
    else if (name === "at") view.at = value;
  }
  return view;
}

// A heading alone stays as it was written.
export function keepAddress() {
  const params = encoded(state);
  const heading = params && params === `at=${encodeURIComponent(state.at)}`;
  const hash = heading ? `#${encodeURIComponent(state.at)}` : params && `#${params}`;
  if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
}

export function readAddress() {
  change(decoded(location.hash));
}
