import { data } from "./data.js";

// The view of the page, all of it kept in a permalink. Initial values are left out of the link.
//   highlight: key of an entry or ""; near: only its neighbors; filters: fact -> chosen values; search: text;
//   sorts: table -> [column, "up" | "down"]; zooms: chart -> [from, to]; all: charts with all drives; open: tables and details that stand open; at: heading.

export const INITIAL = Object.freeze({
  highlight: data.highlight, near: false, filters: {}, search: "", sorts: {}, zooms: {}, all: [], theme: "auto", open: [], at: "",
});

export let state = { ...INITIAL };
const listeners = [];

// listener(state, changed): changed is a Set of the names in the patch.
export function onChange(listener) {
  listeners.push(listener);
}

export function change(patch) {
  const changed = new Set(Object.keys(patch).filter((name) => JSON.stringify(patch[name]) !== JSON.stringify(state[name])));
  if (!changed.size) return;
  state = { ...state, ...patch };
  for (const listener of listeners) listener(state, changed);
}

// A copy of a map of the state with a value set, or without the key if the value is null.
export function put(map, key, value) {
  const { [key]: _, ...others } = map;
  return value == null ? others : { ...others, [key]: value };
}
