// When figures are drawn that nobody has scrolled to; colours; print; addresses within the page.

const drawn = (element) => {
  near.unobserve(element);
  const draw = waiting.get(element);
  waiting.delete(element);
  return draw ? draw() : null;
};
// What nobody has scrolled to is drawn while the browser is idle; what is folded has no width yet.
const idle = window.requestIdleCallback || ((draw) => setTimeout(draw, 100));
const drawNext = () => {
  const element = [...waiting.keys()].find((one) => one.checkVisibility());
  if (element) Promise.resolve(drawn(element)).then(() => idle(drawNext));
};
addEventListener("load", () => setTimeout(() => idle(drawNext), 500));

const theme = document.getElementById("theme");
const recolour = () => {
  for (const one of plots) one.recolour();
  promptsShown?.draw();
};
theme.hidden = false;
const setTheme = (name) => {
  if (name) root.dataset.theme = name; else delete root.dataset.theme;
  recolour();
};
theme.append(choose("Colours", [["", "as the system"], ["light", "light"], ["dark", "dark"]], setTheme).element);
system.addEventListener("change", recolour);
let before = null; // how the page was before a print
const unfold = () => {
  const closed = [...document.querySelectorAll("details.more:not([open])")].filter((one) => one.querySelector(".plot"));
  for (const one of closed) one.open = true;
  return closed;
};
const drawAll = () => Promise.all([...sections.flatMap(({ figures, state }) => figures.map((figure) => figure.draw(state))),
  ...[...waiting.keys()].map(drawn)]);
const prepare = () => {
  before ??= { theme: root.dataset.theme || "", closed: unfold() };
  setTheme("light");
  return drawAll();
};
const frame = () => new Promise((next) => requestAnimationFrame(next));
const printAll = async () => { // a browser prints what is there when it is asked, so that comes last
  await prepare();
  await frame();
  await frame();
  print();
};
addEventListener("beforeprint", prepare);
addEventListener("afterprint", () => {
  if (!before) return;
  for (const one of before.closed) one.open = false;
  setTheme(before.theme);
  before = null;
});
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "p") { event.preventDefault(); printAll(); }
});
theme.append(make("button", { type: "button", click: printAll }, "Print all figures"));

const follow = () => { // #fairness, #fairness?step=440, #prompts?set=…&prompt=…&order=…
  const [id, query] = location.hash.slice(1).split("?");
  const target = document.getElementById(decodeURIComponent(id));
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const about = new URLSearchParams(query || "");
  const section = sections.find((one) => one.section.contains(target));
  if (section?.moveTo && about.has("step")) {
    const step = about.get("step") === "release" ? null : Number(about.get("step"));
    if (section.steps.includes(step)) section.moveTo(step);
  }
  if (promptView?.contains(target) || id === "prompts") promptsShown?.open(about);
  target.scrollIntoView();
};
addEventListener("hashchange", follow);
if (location.hash) follow();
root.dataset.ready = "yes";
