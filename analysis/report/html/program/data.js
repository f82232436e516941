// The data of the page, and helpers to find and make elements.

export const data = JSON.parse(document.getElementById("data").textContent);
export const entries = new Map(data.entries.map((entry) => [entry.key, entry]));

export const one = (selector, root = document) => root.querySelector(selector);
export const all = (selector, root = document) => [...root.querySelectorAll(selector)];

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Shows a message, also to screen readers.
export function say(text) {
  const place = one("#said");
  place.textContent = text;
  place.classList.add("fresh");
  clearTimeout(say.waiting);
  say.waiting = setTimeout(() => place.classList.remove("fresh"), 4000);
}
