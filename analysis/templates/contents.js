import { all, one } from "./data.js";
import { change, state, watch } from "./state.js";

// Ways through the page: its contents, the heading that is read, tables that stand open.

function go(id) {
  const target = document.getElementById(id);
  if (!target) return false;
  if (target.matches("tr")) target.scrollIntoView({ block: "center" });
  else target.scrollIntoView();
  const heading = one("h2, h3", target) ?? target;
  if (!heading.hasAttribute("tabindex")) heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  return true;
}

function markCurrent(links) {
  const seen = new Set();
  const observer = new IntersectionObserver((told) => {
    for (const each of told) each.isIntersecting ? seen.add(each.target.id) : seen.delete(each.target.id);
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
  for (const behind of all("details.behind")) {
    behind.addEventListener("toggle", () => {
      if (document.documentElement.dataset.printing) return;
      const others = state.open.filter((id) => id !== behind.id);
      change({ open: behind.open ? [...others, behind.id] : others });
    });
  }
  markCurrent(all(".contents > ol > li > a"));
  const open = (view) => { for (const behind of all("details.behind")) behind.open = view.open.includes(behind.id); };
  watch((view, changed) => { if (changed.has("open")) open(view); });
  open(state);
  if (state.at) requestAnimationFrame(() => go(state.at));
}
