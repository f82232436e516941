import { all, one } from "./data.js";
import { change, state, onChange } from "./state.js";

// Ways through the page: its contents, the heading that is read, tables that stand open.

function go(id) {
  const target = document.getElementById(id);
  if (!target) return false;
  const folded = id === "method" ? one("details.more", target) : target.closest("details.more");
  if (folded) folded.open = true;
  if (target.matches("tr")) target.scrollIntoView({ block: "center" });
  else target.scrollIntoView();
  const heading = one("h2, h3", target) ?? target;
  if (!heading.hasAttribute("tabindex")) heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  return true;
}

function markCurrent(links) {
  const seen = new Set();
  const observer = new IntersectionObserver((changes) => {
    for (const each of changes) each.isIntersecting ? seen.add(each.target.id) : seen.delete(each.target.id);
    const current = links.find((link) => seen.has(link.hash.slice(1)));
    for (const link of links) {
      link.toggleAttribute("aria-current", link === current);
      if (link === current) link.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const link of links) {
    const section = document.getElementById(link.hash.slice(1));
    if (section) observer.observe(section);
  }
}

export function startContents() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey) return;
    const id = decodeURIComponent(link.hash.slice(1));
    if (!go(id)) return;
    event.preventDefault();
    change({ at: id });
  });
  const folds = all("details.behind, section:not(#method) > details.more");
  for (const behind of folds) {
    behind.addEventListener("toggle", () => {
      if (document.documentElement.dataset.printing) return;
      change({ open: folds.filter((each) => each.open).map((each) => each.id) });
    });
  }
  markCurrent(all(".contents > ol > li > a"));
  const open = (view) => { for (const behind of folds) behind.open = view.open.includes(behind.id); };
  onChange((view, changed) => { if (changed.has("open")) open(view); });
  open(state);
  if (state.at) requestAnimationFrame(() => go(state.at));
}
