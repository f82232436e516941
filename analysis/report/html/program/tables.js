import { all, element, entries, one } from "./data.js";
import { change, put, state, onChange } from "./state.js";
import { visible } from "./visible.js";

// Tables: sorting by any column, filtering of rows, the mark of the drive under test.

const VERDICTS = ["valid", "qualified", "invalid"];
const tables = new Map();

const rowsOf = (body) => [...body.rows].filter((row) => !row.classList.contains("group"));

// The value of a cell as text; "" for none.
export function raw(cell) {
  if (!cell || one(".none", cell)) return "";
  if (cell.dataset.v !== undefined) return cell.dataset.v;
  return (one(".name", cell) ?? cell.firstChild)?.textContent.trim() ?? "";
}

export function columnsOf(table) {
  return [...table.tHead.rows[0].cells];
}

export function shownRows(table) {
  return [...table.tBodies].flatMap(rowsOf).filter((row) => !row.hidden);
}

function compare(format) {
  if (format === "verdict") return (a, b) => VERDICTS.indexOf(a) - VERDICTS.indexOf(b);
  if (format === "text") return (a, b) => a.localeCompare(b, undefined, { numeric: true });
  return (a, b) => Number(a) - Number(b);
}

// Missing values are last in both directions; equal values keep their order.
function sort(table, sorting) {
  const columns = columnsOf(table.node);
  const index = columns.findIndex((column) => column.dataset.key === sorting?.[0]);
  const sign = sorting?.[1] === "down" ? -1 : 1;
  columns.forEach((column, place) => column.setAttribute("aria-sort", place !== index ? "none" : sign < 0 ? "descending" : "ascending"));
  for (const [body, written] of table.written) {
    const group = one("tr.group", body);
    let rows = written;
    if (index >= 0) {
      const order = compare(columns[index].dataset.format);
      const keyed = written.map((row) => [raw(row.cells[index]), row]);
      rows = [...keyed.filter(([value]) => value !== "").sort(([a], [b]) => sign * order(a, b)), ...keyed.filter(([value]) => value === "")].map(([, row]) => row);
    }
    body.append(...(group ? [group] : []), ...rows);
  }
}

function nextSort(id, column) {
  const first = column.dataset.first ?? "up";
  const [key, way] = state.sorts[id] ?? [];
  if (key !== column.dataset.key) return [column.dataset.key, first];
  return way === first ? [key, first === "up" ? "down" : "up"] : null;
}

function sortable(id, column) {
  const title = one(".title", column);
  const button = element("button", { type: "button", className: "sort", onclick: () => change({ sorts: put(state.sorts, id, nextSort(id, column)) }) });
  button.append(...title.childNodes);
  title.replaceWith(button);
}

// Names of drives choose the drive under test. A long table has too many of them for the Tab key.
function nameable(table) {
  if (table.classList.contains("long") || entries.size < 2) return;
  for (const name of all("tr[data-entry] .name", table)) {
    const { entry } = name.closest("tr").dataset;
    if (!entries.has(entry) || one("a", name)) continue;
    name.replaceWith(element("button", { type: "button", className: "name", textContent: name.textContent, title: "Highlight this drive" }));
  }
}

function filter(table, { keys, rowWords }, highlight) {
  let [some, total] = [0, 0];
  for (const [body, rows] of table.written) {
    let inBody = 0;
    for (const row of rows) {
      const { entry } = row.dataset;
      let isVisible = entry === undefined || !entries.has(entry) || keys.has(entry);
      if (isVisible && rowWords.length) {
        if (!table.texts.has(row)) table.texts.set(row, row.textContent.toLowerCase());
        isVisible = rowWords.every((word) => table.texts.get(row).includes(word));
      }
      row.hidden = !isVisible;
      inBody += isVisible;
      row.classList.toggle("marked", highlight !== "" && entry === highlight);
      if (entries.size > 1 && entry !== undefined) one("button.name", row)?.setAttribute("aria-pressed", String(entry === highlight));
    }
    const group = one("tr.group", body);
    if (group) group.hidden = !inBody;
    some += inBody;
    total += rows.length;
  }
  table.count.textContent = some === total ? "" : ` · ${some.toLocaleString("en")} of ${total.toLocaleString("en")} rows shown`;
}

function apply(view, changed) {
  const now = ["highlight", "near", "filters", "search"].some((name) => changed.has(name)) ? visible(view) : null;
  for (const [id, table] of tables) {
    const sorting = JSON.stringify(view.sorts[id] ?? null);
    if (sorting !== table.sorted) sort(table, view.sorts[id]);
    table.sorted = sorting;
    if (now) filter(table, now, view.highlight);
  }
}

export function startTables() {
  for (const node of all("table[id]:not(.definitions)")) {
    const count = element("span", { className: "count" });
    (node.caption.firstElementChild ?? node.caption).append(count);
    for (const column of columnsOf(node)) sortable(node.id, column);
    nameable(node);
    const written = new Map([...node.tBodies].map((body) => [body, rowsOf(body)]));
    tables.set(node.id, { node, count, written, texts: new Map(), sorted: "null" });
  }
  for (const { node } of tables.values()) {
    columnsOf(node).forEach((column) => column.setAttribute("aria-sort", "none"));
  }
  onChange(apply);
  apply(state, new Set(["highlight", "search"]));
}
