import { all, data, element, entries, one } from "./data.js";
import { change, put, state, watch } from "./state.js";
import { shown } from "./shown.js";
import { emptied, fitted, followsHighlight, highlighted, isFitted, reduced, withZoom, zoomed } from "./specs.js";
import { prefersDark, themeNow } from "./palette.js";

// Charts are drawn when they come near the screen, the rest while the browser is idle, one after another. One that
// fails says so in its place.

// As wide as its place and as high as its rows is what a ranking is to be; Vega-Lite remarks on it each time.
const { warn } = console;
console.warn = (...told) => /Dropping "fit-[xy]"/.test(told.join(" ")) || warn.apply(console, told);
const AXIS_AND_PADDING = 78;
const charts = new Map();
const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 30));
let working = false;

function wanted(chart, view = state) {
  return JSON.stringify([[...shown(view).keys], themeNow(), chart.fits ? chart.place.clientWidth : 0,
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

function tell(chart, text) {
  chart.result?.finalize();
  chart.result = null;
  chart.place.removeAttribute("role"); // what stands in a picture is not read aloud
  chart.place.replaceChildren(element("p", { className: "untold", textContent: text }));
}

async function draw(chart) {
  const { keys } = shown(state);
  chart.drawn = wanted(chart);
  chart.highlight = state.highlight;
  if (emptied(chart.spec, keys, chart.spec.datasets)) {
    tell(chart, "No drive that is shown has figures here.");
    return;
  }
  const height = chart.place.clientHeight;
  chart.place.style.minHeight = `${height}px`; // nothing below jumps meanwhile
  // Vega gives the element it draws in a role of its own.
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
    tell(chart, `This chart could not be drawn (${error.message}). The table below holds its figures.`);
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
      chart.drawn = wanted(chart, { ...state, zooms }); // what was dragged is drawn already
      change({ zooms });
    }, 120);
  });
}

// The next chart that is not as it should be, those on the screen first.
function next() {
  const stale = [...charts.values()].filter((chart) => chart.drawn !== wanted(chart));
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
  document.documentElement.dataset.settled = "1"; // every chart is as the view wants it
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

// The chart as it stands, on a background of its own, as SVG or as the address of a PNG.
export async function picture(id, format) {
  const chart = charts.get(id);
  const place = element("div", { className: "picture" });
  place.style.width = `${chart.place.clientWidth}px`;
  document.body.append(place);
  try {
    const theme = themeNow();
    const background = getComputedStyle(document.body).backgroundColor;
    const { view, finalize } = await embed(place, specification(chart, shown(state).keys, Math.max(0, overhang(chart))), theme, { background });
    const made = format === "svg" ? await view.toSVG() : await view.toImageURL("png", 2);
    finalize();
    return made;
  } finally {
    place.remove();
  }
}

export function startCharts() {
  const near = new IntersectionObserver((seen) => {
    for (const each of seen) charts.get(each.target.dataset.chart).near = each.isIntersecting;
    if (seen.some((each) => each.isIntersecting)) work();
  }, { rootMargin: "300px" });
  for (const place of all("[data-chart]")) {
    const id = place.dataset.chart;
    const spec = data.specs[id];
    charts.set(id, { id, place, spec, fits: isFitted(spec), zooms: "zooms" in place.dataset ? zoomed(spec) : null, near: false, drawn: null, result: null });
    near.observe(place);
    // Names along an axis, in a legend or above a row are no marks to Vega.
    place.addEventListener("click", (event) => {
      const name = event.target.closest?.("text")?.textContent.trim();
      if (entries.has(name)) choose({ datum: { entry: name } });
    });
  }
  watch(refresh);
  prefersDark.addEventListener("change", refresh);
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, 150);
  });
  requestAnimationFrame(() => setTimeout(refresh));
}
