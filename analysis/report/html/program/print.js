import { lighten } from "./palette.js";

// On paper: charts in light colors; of tables and details those that the reader opened.

let undo = null;

function before() {
  if (undo) return;
  document.documentElement.dataset.printing = "1";
  const darken = lighten(document);
  undo = darken;
}

function after() {
  undo?.();
  undo = null;
  // The toggle events of what was closed come later.
  setTimeout(() => { if (!undo) delete document.documentElement.dataset.printing; }, 100);
}

export function startPrint() {
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  window.matchMedia("print").addEventListener("change", (query) => (query.matches ? before() : after()));
}
