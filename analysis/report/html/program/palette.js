import { data } from "./data.js";
import { state } from "./state.js";

// The current theme, and charts of the dark theme in the colors of the light one, for printing.

export const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

export function themeNow() {
  if (state.theme !== "auto") return state.theme;
  return prefersDark.matches ? "dark" : "light";
}

function pairs(dark, light, mapped = new Map()) {
  for (const name of Object.keys(dark)) {
    if (typeof dark[name] === "string") {
      if (/^#[0-9a-f]{6}$/i.test(dark[name])) mapped.set(dark[name].toLowerCase(), light[name]);
    } else if (dark[name] && typeof dark[name] === "object") pairs(dark[name], light[name], mapped);
  }
  return mapped;
}

const hex = (color) => {
  const parts = /^rgba?\((\d+), ?(\d+), ?(\d+)/.exec(color);
  return parts ? `#${parts.slice(1).map((part) => Number(part).toString(16).padStart(2, "0")).join("")}` : color.toLowerCase();
};

// Before a page is printed there is no time to draw anew: the colors that the theme gave are exchanged in place.
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
