// Draws the charts of the page in the theme that the reader prefers, and again when it or the width changes.
const { specs, themes } = JSON.parse(document.getElementById("drawing").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const printing = window.matchMedia("print");
const places = [...document.querySelectorAll("[data-chart]")];
const views = new Map();

// Rows of a concatenated chart can't follow their container: they get its width, less axis and padding.
const AXIS_AND_PADDING = 78;

function fitted(spec, place) {
  const copy = structuredClone(spec);
  for (const row of copy.vconcat ?? []) row.width = Math.max(160, place.clientWidth - AXIS_AND_PADDING);
  return copy;
}

async function draw(place) {
  const name = place.dataset.chart;
  views.get(place)?.finalize();
  const theme = themes[dark.matches && !printing.matches ? "dark" : "light"];
  const result = await window.vegaEmbed(place, fitted(specs[name], place), {
    config: theme, renderer: "svg", downloadFileName: name,
    actions: { export: true, source: false, compiled: false, editor: false },
  });
  views.set(place, result);
  place.dataset.width = place.clientWidth;
}

async function drawAll() {
  await Promise.all(places.map(draw));
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
}

let waiting;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    for (const place of places) {
      if (specs[place.dataset.chart].vconcat && place.clientWidth !== Number(place.dataset.width)) draw(place);
    }
  }, 150);
});
dark.addEventListener("change", drawAll);
printing.addEventListener("change", drawAll);
await drawAll();
