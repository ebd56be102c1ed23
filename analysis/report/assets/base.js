// What every part of the page uses: its data, elements, numbers as people read them, controls.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;

// Text of strangers only ever becomes text nodes and attribute values.
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const digits = (value) => {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e7 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
};
const named = (step) => (step === null ? "release" : `step ${step.toLocaleString("en")}`);
const distinct = (values) => [...new Set(values)];
const choose = (label, options, change) => {
  const select = make("select", { "aria-label": label, change: () => change(select.value) },
    ...options.map(([value, text]) => make("option", { value }, text)));
  return { select, element: make("label", {}, make("span", { class: "label" }, label), select) };
};
// A column of a table, in which repeated texts are indices.
const cells = (column) => (column.texts ? column.at.map((at) => (at === null ? null : column.texts[at])) : column);
