import { all, element, one, say } from "./data.js";
import { columnsOf, raw, shownRows } from "./tables.js";

// Tables as CSV: the visible rows in their order, unrounded values, keys with their units as the header.

// A name that a spreadsheet would take for a formula begins with an apostrophe.
const withoutFormula = (text) => (/^[=+\-@]/.test(text) ? `'${text}` : text);

const cellText = (cell) => (cell.dataset.v === undefined ? withoutFormula(raw(cell)) : raw(cell));

const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

export function csv(table) {
  const grouped = Boolean(one("tr.group", table));
  const lines = [[...(grouped ? ["group"] : []), ...columnsOf(table).map((column) => column.dataset.key)]];
  for (const row of shownRows(table)) {
    const group = grouped ? [one("tr.group span", row.parentNode)?.textContent.trim() ?? ""].map(withoutFormula) : [];
    lines.push([...group, ...[...row.cells].map(cellText)]);
  }
  return lines.map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

export function download(name, address) {
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

export function downloadText(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  download(name, address);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Some browsers refuse the clipboard to files; then the old way, and where that fails too the text stands there selected.
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied ${what}`);
    return;
  } catch {
    // The old way, below.
  }
  const focused = document.activeElement;
  const area = element("textarea", { value: text, className: "copied", readOnly: true });
  area.setAttribute("aria-label", `Copy this text: ${what}`);
  document.body.append(area);
  area.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    // It stays on the screen.
  }
  if (done) {
    area.remove();
    focused?.focus();
    say(`Copied ${what}`);
    return;
  }
  area.classList.add("by-hand");
  area.addEventListener("keydown", (event) => { if (event.key === "Escape") area.blur(); });
  area.addEventListener("blur", () => { area.remove(); focused?.focus(); }, { once: true });
  say("The browser keeps its clipboard to itself: press Ctrl+C to copy, Escape to close");
}

function buttons(table) {
  const caption = table.caption.firstElementChild.firstChild.textContent.trim();
  const count = () => `${shownRows(table).length} rows of “${caption}” as CSV`;
  const make = (text, act) => {
    const made = element("button", { type: "button", textContent: text, onclick: act });
    made.setAttribute("aria-label", `${text}: ${caption}`);
    return made;
  };
  return element("span", { className: "csv" },
    make("Copy CSV", () => copy(csv(table), count())),
    make("Download CSV", () => downloadText(`${table.id.replace(/-table$/, "")}.csv`, "text/csv", csv(table))));
}

export function startCsv() {
  for (const table of all("table[id]:not(.definitions)")) table.closest(".scroll").before(buttons(table));
}
