import { all, data, element, entries, one } from "./data.js";
import { change, put, state, onChange } from "./state.js";
import { featured, visible } from "./visible.js";
import { emptied, fitted, followsHighlight, highlighted, isFitted, reduced, withZoom, zoomed } from "./specs.js";
import { prefersDark, themeNow } from "./palette.js";

// Charts are drawn when they come near the screen, the others one after another while the browser is idle. A chart that
// fails shows the error in its place.

// Vega-Lite warns about each ranking, which is as wide as its place and as high as its rows.
const { warn } = console;
console.warn = (...args) => /Dropping "fit-[xy]"/.test(args.join(" ")) || warn.apply(console, args);
const AXIS_AND_PADDING = 78;
const charts = new Map();
const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 30));
let working = false;

// The entries that a chart draws: of one that features some, these, until the reader chooses others or asks for all.
function keysOf(chart, view = state) {
  const { keys } = visible(view);
  if (!chart.features || keys.size < entries.size || view.all.includes(chart.id)) return keys;
  return featured(view.highlight, data.featured);
}

function wanted(chart, view = state) {
  return JSON.stringify([[...keysOf(chart, view)], themeNow(), chart.fits ? chart.place.clientWidth : 0,
    chart.zooms ? view.zooms[chart.id] ?? null : null]);
}

function specification(chart, keys, narrower = 0) {
  let spec = highlighted(reduced(chart.spec, keys), state.highlight);
  if (chart.zooms) spec = withZoom(spec, state.zooms[chart.id]);
  if (chart.fits) spec = fitted(spec, Math.max(140, chart.place.clientWidth - AXIS_AND_PADDING - narrower));
  return spec;
}

function embed(place, spec, theme, more = {}) {
  return window.vegaEmbed(place, spec, {
    config: { aria: false, ...data.themes[theme], ...more }, renderer: "svg", actions: false,
  });
}

function showMessage(chart, text) {
  chart.result?.finalize();
  chart.result = null;
  chart.place.removeAttribute("role"); // screen readers do not read the inside of an image
  chart.place.replaceChildren(element("p", { className: "message", textContent: text }));
}

async function draw(chart) {
  const keys = keysOf(chart);
  chart.drawn = wanted(chart);
  chart.highlight = state.highlight;
  if (emptied(chart.spec, keys, chart.spec.datasets)) {
    showMessage(chart, "None of the drives shown has data here.");
    return;
  }
  const height = chart.place.clientHeight;
  chart.place.style.minHeight = `${height}px`; // so that nothing below moves meanwhile
  // Vega sets a role on the element it draws in.
  const canvas = one(".canvas", chart.place) ?? element("div", { className: "canvas" });
  chart.place.replaceChildren(canvas);
  chart.place.setAttribute("role", "img");
  try {
    let before = chart.result;
    for (const narrower of [0, null]) {
      const over = narrower ?? overhang(chart);
      if (narrower === null && over <= 0) break;
      before?.finalize();
      chart.result = before = await embed(canvas, specification(chart, keys, over), themeNow());
    }
    chart.result.view.addEventListener("click", (event, item) => choose(item));
    if (chart.zooms) listenToZoom(chart);
  } catch (error) {
    console.error(`${chart.id}: ${error.message}`);
    showMessage(chart, `This chart could not be drawn (${error.message}). The table below has its data.`);
  }
  chart.place.style.minHeight = "";
}

function overhang(chart) {
  const svg = chart.place.querySelector("svg");
  return chart.fits && svg ? Math.ceil(Number(svg.getAttribute("width")) - chart.place.clientWidth) : 0;
}

function choose(item) {
  const key = item?.datum?.entry ?? item?.datum?.value ?? item?.datum?.label;
  if (entries.has(key) && entries.size > 1) change({ highlight: key });
}

function listenToZoom(chart) {
  let waiting;
  const { field } = chart.zooms;
  chart.result.view.addSignalListener("zoom", (name, value) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const range = value?.[field];
      const zooms = put(state.zooms, chart.id, range ? [Math.min(...range), Math.max(...range)] : null);
      chart.drawn = wanted(chart, { ...state, zooms }); // the dragged range is drawn already
      change({ zooms });
    }, 120);
  });
}

// The next chart that is out of date, those on the screen first.
function next() {
  const stale = [...charts.values()].filter((chart) => chart.place.checkVisibility() && chart.drawn !== wanted(chart));
  return stale.find((chart) => chart.near) ?? stale[0];
}

async function work() {
  if (working) return;
  working = true;
  for (let chart = next(); chart; chart = next()) {
    if (!chart.near) await new Promise((resume) => idle(resume, { timeout: 500 }));
    await draw(chart);
    if (![...charts.values()].some((each) => each.near && !each.drawn)) document.documentElement.dataset.first ??= String(performance.now());
  }
  working = false;
  document.documentElement.dataset.settled = "1"; // every chart shows the current view
}

function refresh() {
  delete document.documentElement.dataset.settled;
  for (const chart of charts.values()) {
    if (chart.result && followsHighlight(chart.spec) && chart.highlight !== state.highlight) {
      chart.highlight = state.highlight;
      chart.result.view.signal("highlight", state.highlight).runAsync();
    }
  }
  work();
}

export function chartOf(id) {
  return charts.get(id);
}

export async function allDrawn() {
  while (next() || working) await new Promise((resume) => setTimeout(resume, 30));
}

// The chart as shown, with a background, as SVG or as the URL of a PNG.
export async function picture(id, format) {
  const chart = charts.get(id);
  const place = element("div", { className: "picture" });
  place.style.width = `${chart.place.clientWidth}px`;
  document.body.append(place);
  try {
    const theme = themeNow();
    const background = getComputedStyle(document.body).backgroundColor;
    const { view, finalize } = await embed(place, specification(chart, keysOf(chart), Math.max(0, overhang(chart))), theme, { background });
    const made = format === "svg" ? await view.toSVG() : await view.toImageURL("png", 2);
    finalize();
    return made;
  } finally {
    place.remove();
  }
}

// The line below a chart that features some drives, as a button.
function startFeatured(chart) {
  const line = one(".rest", chart.place.closest(".card"));
  const button = element("button", { type: "button", onclick: () => {
    const others = state.all.filter((id) => id !== chart.id);
    change({ all: state.all.includes(chart.id) ? others : [...others, chart.id] });
  } });
  const show = () => {
    button.textContent = state.all.includes(chart.id) ? `Show ${data.featured} drives` : `${entries.size - data.featured} more ${entries.size - data.featured === 1 ? "drive" : "drives"}`;
    line.hidden = visible(state).keys.size < entries.size;
  };
  line.replaceChildren(button);
  onChange(show);
  show();
}

export function startCharts() {
  const near = new IntersectionObserver((seen) => {
    for (const each of seen) charts.get(each.target.dataset.chart).near = each.isIntersecting;
    if (seen.some((each) => each.isIntersecting)) work();
  }, { rootMargin: "300px" });
  for (const place of all("[data-chart]")) {
    const id = place.dataset.chart;
    const spec = data.specs[id];
    charts.set(id, { id, place, spec, fits: isFitted(spec), zooms: "zooms" in place.dataset ? zoomed(spec) : null, features: "featured" in place.dataset, near: false, drawn: null, result: null });
    if ("featured" in place.dataset) startFeatured(charts.get(id));
    near.observe(place);
    // Vega reports no click on text of an axis, a legend or a title.
    place.addEventListener("click", (event) => {
      const name = event.target.closest?.("text")?.textContent.trim();
      if (entries.has(name)) choose({ datum: { entry: name } });
    });
  }
  onChange(refresh);
  for (const details of all("details.more")) details.addEventListener("toggle", refresh);
  prefersDark.addEventListener("change", refresh);
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, 150);
  });
  requestAnimationFrame(() => setTimeout(refresh));
}
