import { all } from "./data.js";
import { lighten } from "./palette.js";

// On paper: charts in light colours, tables open; long ones only where the reader opened them.

let undo = null;

function before() {
  if (undo) return;
  document.documentElement.dataset.printing = "1";
  const opened = all("details:not(.long):not(.filters):not([open])");
  for (const each of opened) each.open = true;
  const darken = lighten(document);
  undo = () => {
    for (const each of opened) each.open = false;
    darken();
  };
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
  window.matchMedia("print").addEventListener("change", (told) => (told.matches ? before() : after()));
}
