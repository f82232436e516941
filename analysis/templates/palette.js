import { data } from "./data.js";
import { state } from "./state.js";

// Which theme is on, and charts drawn in the dark theme brought to the light one for paper.

export const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

export function themeNow() {
  if (state.theme !== "auto") return state.theme;
  return prefersDark.matches ? "dark" : "light";
}

function pairs(dark, light, found = new Map()) {
  for (const name of Object.keys(dark)) {
    if (typeof dark[name] === "string") {
      if (/^#[0-9a-f]{6}$/i.test(dark[name])) found.set(dark[name].toLowerCase(), light[name]);
    } else if (dark[name] && typeof dark[name] === "object") pairs(dark[name], light[name], found);
  }
  return found;
}

const hex = (colour) => {
  const parts = /^rgba?\((\d+), ?(\d+), ?(\d+)/.exec(colour);
  return parts ? `#${parts.slice(1).map((part) => Number(part).toString(16).padStart(2, "0")).join("")}` : colour.toLowerCase();
};

// Before a page is printed there is no time to draw anew: the colours that the theme gave are exchanged in place.
export function lighten(root) {
  const lights = pairs(data.themes.dark, data.themes.light);
  const undo = [];
  for (const node of root.querySelectorAll("svg [fill], svg [stroke]")) {
    for (const name of ["fill", "stroke"]) {
      const was = node.getAttribute(name);
      const light = was && lights.get(hex(was));
      if (!light) continue;
      node.setAttribute(name, light);
      undo.push(() => node.setAttribute(name, was));
    }
  }
  return () => undo.forEach((each) => each());
}
