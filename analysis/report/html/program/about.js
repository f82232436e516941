import { element, one } from "./data.js";
import { state } from "./state.js";
import { shownRows } from "./tables.js";
import { copy } from "./csv.js";

// Formula, unit and command of a column, beside its heading; also listed under Method.

function pathFor(table) {
  const rows = shownRows(table).filter((row) => row.dataset.path);
  return (rows.find((row) => row.dataset.entry === state.highlight) ?? rows[0])?.dataset;
}

const shell = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

// A value over several runs of a drive is printed by a comparison of these runs.
function commandOf(text, paths) {
  const runs = paths.map(shell).join(" ");
  return paths.length > 1 ? text.replaceAll("blkreel report RUN", () => `blkreel compare ${runs}`) : text.replaceAll("RUN", () => runs);
}

function part(name, ...content) {
  return element("div", {}, element("dt", { textContent: name }), element("dd", {}, ...content));
}

function fill(box, link) {
  const [title, unit, formula, command] = one(link.getAttribute("href")).cells;
  const dataset = pathFor(link.closest("table"));
  const list = element("dl", {}, part("Formula", formula.textContent));
  if (unit.textContent) list.append(part("Unit", unit.textContent));
  if (command.textContent) {
    const text = dataset ? commandOf(command.textContent, dataset.path.split("\n")) : command.textContent;
    const button = element("button", { type: "button", textContent: "Copy command", onclick: () => copy(text, "the command") });
    list.append(part(dataset?.entry ? `Command, for ${dataset.entry}` : "Command", element("code", { textContent: text }), button));
  }
  const close = element("button", { type: "button", className: "close", textContent: "Close", onclick: () => box.hidePopover() });
  box.replaceChildren(element("p", { className: "about-title", textContent: title.firstChild.textContent }), list, close);
  return close;
}

function place(box, link) {
  const at = link.getBoundingClientRect();
  const width = Math.min(420, document.documentElement.clientWidth - 24);
  box.style.width = `${width}px`;
  box.style.left = `${Math.max(12, Math.min(at.left - 20, document.documentElement.clientWidth - width - 12))}px`;
  const below = at.bottom + 8;
  box.style.top = `${below + box.offsetHeight > window.innerHeight ? Math.max(8, at.top - 8 - box.offsetHeight) : below}px`;
}

export function startAbout() {
  const box = one("#about");
  if (!box.showPopover) return; // the link leads to the row under Method
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.about");
    if (!link) return;
    event.preventDefault();
    event.stopPropagation();
    const close = fill(box, link);
    box.showPopover();
    place(box, link);
    close.focus();
    box.addEventListener("toggle", (toggled) => { if (toggled.newState === "closed") link.focus(); }, { once: true });
  }, true);
  window.addEventListener("scroll", () => box.matches(":popover-open") && box.hidePopover(), { passive: true });
}
