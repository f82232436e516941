import { entries } from "./data.js";

// Which entries a view shows.

const NEIGHBOURS = 2;

export function words(search) {
  return search.toLowerCase().split(/\s+/).filter(Boolean);
}

function passes(entry, filters) {
  return Object.entries(filters).every(([fact, values]) => !values.length || values.includes(entry.facts[fact] ?? ""));
}

function named(entry, wanted) {
  const text = [entry.key, ...Object.values(entry.facts)].join(" ").toLowerCase();
  return wanted.every((word) => text.includes(word));
}

// The entry itself, two places up and down by rank, and those it names as predecessor and rivals.
export function neighbours(key, among) {
  const ranked = among.filter((entry) => entry.rank != null).sort((a, b) => a.rank - b.rank);
  const place = ranked.findIndex((entry) => entry.key === key);
  const beside = place < 0 ? [] : ranked.slice(Math.max(0, place - NEIGHBOURS), place + NEIGHBOURS + 1);
  return new Set([key, ...beside.map((entry) => entry.key), ...(entries.get(key)?.kin ?? [])]);
}

// { keys: Set of entries shown, rowWords: words that rows must hold since they name no entry }
export function shown(state) {
  let among = [...entries.values()].filter((entry) => passes(entry, state.filters));
  const wanted = words(state.search);
  const found = wanted.length ? among.filter((entry) => named(entry, wanted)) : [];
  if (state.near && entries.has(state.highlight)) {
    const near = neighbours(state.highlight, among);
    among = among.filter((entry) => near.has(entry.key));
  }
  if (found.length && entries.size > 1) {
    return { keys: new Set(among.filter((entry) => found.includes(entry)).map((entry) => entry.key)), rowWords: [] };
  }
  return { keys: new Set(among.map((entry) => entry.key)), rowWords: wanted };
}
