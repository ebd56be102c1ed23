// When figures are drawn that nobody has scrolled to; colours; print.

// What nobody has scrolled to is drawn while the browser is idle, so that a print has all of it.
const idle = window.requestIdleCallback || ((draw) => setTimeout(draw, 100));
const drawNext = () => {
  const [element] = [...waiting.keys()];
  if (!element) return;
  near.unobserve(element);
  const draw = waiting.get(element);
  waiting.delete(element);
  Promise.resolve(draw()).then(() => idle(drawNext));
};
addEventListener("load", () => setTimeout(() => idle(drawNext), 500));

const theme = document.getElementById("theme");
const recolour = () => { for (const one of plots) one.recolour(); };
theme.hidden = false;
const setTheme = (name) => {
  if (name) root.dataset.theme = name; else delete root.dataset.theme;
  recolour();
};
theme.append(choose("Colours", [["", "as the system"], ["light", "light"], ["dark", "dark"]], setTheme).element);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
let before = "";
addEventListener("beforeprint", () => {
  before = root.dataset.theme || "";
  for (const { figures, state } of sections) for (const figure of figures) figure.draw(state);
  setTheme("light");
});
addEventListener("afterprint", () => setTheme(before));
root.dataset.ready = "yes";
