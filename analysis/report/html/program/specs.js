import { entries } from "./data.js";

// Prepares specifications for drawing: the data of the visible entries, the highlight, the zoom, the width.

const isOf = (datum) => typeof datum?.entry === "string" && entries.has(datum.entry);

// Every array of inline data below a node, and the named data sets that it uses.
function* inline(node, datasets) {
  if (Array.isArray(node)) {
    for (const each of node) yield* inline(each, datasets);
  } else if (node && typeof node === "object") {
    for (const [name, value] of Object.entries(node)) {
      if (name === "data" && value) {
        if (Array.isArray(value.values)) yield value.values;
        else if (datasets?.[value.name]) yield datasets[value.name];
      } else if (name !== "datasets") yield* inline(value, datasets);
    }
  }
}

export function everyValue(spec) {
  return [...inline(spec, spec.datasets)].flat();
}

// Whether a node has data of entries, and none of a visible one.
export function emptied(node, keys, datasets) {
  let some = false;
  for (const values of inline(node, datasets)) {
    for (const datum of values) {
      if (!isOf(datum)) continue;
      if (keys.has(datum.entry)) return false;
      some = true;
    }
  }
  return some;
}

const selects = (node) => JSON.stringify(node).includes('"select"');

// The specification without data and legend symbols of entries that are not in `keys`. A row of a concatenation without
// other data is removed, except the strip that zooms.
export function reduced(spec, keys) {
  const kept = (values) => values.filter((datum) => !isOf(datum) || keys.has(datum.entry));
  const walk = (node) => {
    if (Array.isArray(node)) return node.map(walk);
    if (!node || typeof node !== "object") return node;
    return Object.fromEntries(Object.entries(node).map(([name, value]) => {
      if (name === "data" && Array.isArray(value?.values)) return [name, { ...value, values: kept(value.values) }];
      if (name === "legend" && Array.isArray(value?.values)) {
        return [name, { ...value, values: value.values.filter((key) => !entries.has(key) || keys.has(key)) }];
      }
      if (name === "datasets") return [name, Object.fromEntries(Object.entries(value).map(([key, values]) => [key, kept(values)]))];
      if (["vconcat", "hconcat", "concat"].includes(name)) {
        return [name, value.flatMap((child) => {
          if (!emptied(child, keys, spec.datasets)) return [walk(child)];
          return selects(child) ? [child] : [];
        })];
      }
      return [name, walk(value)];
    }));
  };
  return walk(spec);
}

export function highlighted(spec, key) {
  const params = spec.params?.map((param) => (param.name === "highlight" ? { ...param, value: key } : param));
  return params ? { ...spec, params } : spec;
}

export const followsHighlight = (spec) => Boolean(spec.params?.some((param) => param.name === "highlight"));

// Field and bounds of what `zoom` selects on x; null where the chart has no such param.
export function zoomed(spec) {
  let field = null;
  const walk = (node, x) => {
    if (!node || typeof node !== "object" || field) return;
    const own = node.encoding?.x?.field ?? node.layer?.map((layer) => layer.encoding?.x?.field).find(Boolean) ?? x;
    if (node.params?.some?.((param) => param.name === "zoom")) field = own;
    for (const value of Object.values(node)) walk(value, own);
  };
  walk(spec, null);
  if (!field) return null;
  const values = everyValue(spec).map((datum) => datum[field]).filter(Number.isFinite);
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return values.length ? { field, low: Math.min(0, low), high } : null;
}

export function withZoom(spec, range) {
  const walk = (node) => {
    if (Array.isArray(node)) return node.map(walk);
    if (!node || typeof node !== "object") return node;
    const copy = Object.fromEntries(Object.entries(node).map(([name, value]) => [name, name === "data" || name === "datasets" ? value : walk(value)]));
    if (Array.isArray(copy.params)) {
      copy.params = copy.params.map((param) => (param.name === "zoom" && param.select ? { ...param, value: { x: range } } : param));
    }
    return copy;
  };
  return range ? walk(spec) : spec;
}

// As NARROW_PIXELS of charts/over_time.py.
const NARROW = 420;

// Rows of a concatenation and of facets cannot follow the width of their container.
export function fitted(spec, width) {
  const rows = (node) => {
    if (node.vconcat) return { ...node, vconcat: node.vconcat.map(rows) };
    if (node.hconcat || node.concat || node.facet?.column) return node;
    if (node.spec && node.facet) return { ...node, spec: { ...node.spec, width } };
    return { ...node, width };
  };
  if (!isFitted(spec)) return spec;
  const params = spec.params?.map((param) => (param.name === "narrow" ? { ...param, value: width < NARROW } : param));
  return { ...rows(spec), ...(params && { params }) };
}

export const isFitted = (spec) => Boolean(spec.vconcat || spec.facet);
