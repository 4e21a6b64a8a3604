// What every page shares: its data, and elements made of text nodes. Nothing here makes markup of a text.

const SVG = "http://www.w3.org/2000/svg";
const read = (id) => JSON.parse(document.getElementById(id).textContent);

// What a reader cannot see, or what changes the order of letters, is shown as its code.
const visible = (text) => String(text).replace(
  /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu,
  (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`,
);

function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  const rounded = Object.entries(attributes).map(([name, value]) => [name, typeof value === "number" ? +value.toFixed(2) : value]);
  return filled(document.createElementNS(SVG, tag), Object.fromEntries(rounded), children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) element.setAttribute(name, visible(value));
  }
  element.append(...children.flat().map((child) => (child instanceof Node ? child : visible(child))));
  return element;
}
