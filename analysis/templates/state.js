import { data } from "./data.js";

// The view of the page: all that a permalink keeps. What is left at its first value is left out of the link.
//   highlight: key of an entry or ""; near: only its neighbours; filters: fact -> chosen values; search: text;
//   sorts: table -> [column, "up" | "down"]; zooms: chart -> [from, to]; open: tables that stand open; at: heading.

export const INITIAL = Object.freeze({
  highlight: data.highlight, near: false, filters: {}, search: "", sorts: {}, zooms: {}, theme: "auto", open: [], at: "",
});

export let state = { ...INITIAL };
const listeners = [];

// listener(state, changed): changed is a Set of the names in the patch.
export function watch(listener) {
  listeners.push(listener);
}

export function change(patch) {
  const changed = new Set(Object.keys(patch).filter((name) => JSON.stringify(patch[name]) !== JSON.stringify(state[name])));
  if (!changed.size) return;
  state = { ...state, ...patch };
  for (const listener of listeners) listener(state, changed);
}

// A map of the state without or with one more value.
export function put(map, key, value) {
  const { [key]: _, ...others } = map;
  return value == null ? others : { ...others, [key]: value };
}
