"use strict";
// Elements, figures and the tip that all pictures share. Texts are set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes and children; a child that is no element becomes text. */
function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** An HTML element, likewise. */
function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A number with separators and so many digits behind the point. */
const number = (value, digits = 0) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const cycles = (value) => `${number(Math.round(value))} cycles`;
const percent = (share, digits = 1) => `${number(100 * share, digits)} %`;
const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

/** A step of 1, 2 or 5 times a power of ten, so that an extent has about so many of them. */
function step(extent, count) {
  const rough = extent / Math.max(1, count), scale = 10 ** Math.floor(Math.log10(rough));
  return scale * [1, 2, 5, 10].find((factor) => factor * scale >= rough);
}

/** A text that fits into so many pixels at 12 px, cut with an ellipsis. */
function fitted(text, pixels, each = 6.4) {
  const most = Math.floor(pixels / each);
  return text.length <= most ? text : most < 2 ? "" : text.slice(0, most - 1) + "…";
}

const tip = {
  element: null,
  show(text, x, y) {
    this.element ??= document.body.appendChild(html("div", { class: "tip", role: "status" }));
    this.element.hidden = false;
    this.element.textContent = text;
    const { width, height } = this.element.getBoundingClientRect();
    this.element.style.left = `${clamp(x + 14, 4, innerWidth - width - 4)}px`;
    this.element.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
  },
  hide() { if (this.element) this.element.hidden = true; },
};

/** Tell of an element while the pointer is on it, or while it has the focus. */
function tells(element, text) {
  element.addEventListener("pointermove", (event) => tip.show(text, event.clientX, event.clientY));
  element.addEventListener("pointerleave", () => tip.hide());
  return element;
}

/** Draw again whenever the width of a host changes. */
function watched(host, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = host.clientWidth;
    if (width && width !== last) { last = width; draw(width); }
  }).observe(host);
}

function themeToggle() {
  const button = document.querySelector(".theme");
  const dark = () => (document.documentElement.dataset.theme ??
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const say = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    say();
    document.dispatchEvent(new Event("theme"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { say(); document.dispatchEvent(new Event("theme")); });
  say();
}
