import { entries } from "./data.js";

// The entries that a view shows.

const NEIGHBORS = 2;

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
export function neighbors(key, among) {
  const ranked = among.filter((entry) => entry.rank != null).sort((a, b) => a.rank - b.rank);
  const place = ranked.findIndex((entry) => entry.key === key);
  const beside = place < 0 ? [] : ranked.slice(Math.max(0, place - NEIGHBORS), place + NEIGHBORS + 1);
  return new Set([key, ...beside.map((entry) => entry.key), ...(entries.get(key)?.kin ?? [])]);
}

// The entries that a chart of many draws first: the drive under test, those it names, the best and the worst.
export function featured(highlight, most) {
  const ordered = [...entries.keys()];
  if (ordered.length <= most) return new Set(ordered);
  const near = entries.has(highlight) ? [highlight, ...(entries.get(highlight).kin ?? [])].slice(0, most - 2) : [];
  const ends = ordered.flatMap((key, index) => [key, ordered[ordered.length - 1 - index]]);
  return new Set([...new Set([...near, ...ends])].slice(0, most));
}

// { keys: Set of entries shown, rowWords: words that rows must contain because they name no entry }
export function visible(state) {
  let among = [...entries.values()].filter((entry) => passes(entry, state.filters));
  const wanted = words(state.search);
  const matching = wanted.length ? among.filter((entry) => named(entry, wanted)) : [];
  if (state.near && entries.has(state.highlight)) {
    const near = neighbors(state.highlight, among);
    among = among.filter((entry) => near.has(entry.key));
  }
  if (matching.length && entries.size > 1) {
    return { keys: new Set(among.filter((entry) => matching.includes(entry)).map((entry) => entry.key)), rowWords: [] };
  }
  return { keys: new Set(among.map((entry) => entry.key)), rowWords: wanted };
}
