// When charts are drawn; colours; print; addresses within the page.

const charts = [...sections.flatMap((section) => section.charts), ...(promptsShown ? [promptsShown.chart] : [])];
const waiting = new Map(charts.map((chart) => [chart.plot, chart]));
const drawWaiting = (plot) => {
  near.unobserve(plot);
  const chart = waiting.get(plot);
  waiting.delete(plot);
  return chart?.draw();
};
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) drawWaiting(entry.target);
}, { rootMargin: "400px" });
for (const plot of waiting.keys()) near.observe(plot);
// What nobody has scrolled to is drawn while the browser is idle.
const idle = window.requestIdleCallback || ((draw) => setTimeout(draw, 100));
const drawNext = () => {
  const [plot] = waiting.keys();
  if (plot) drawWaiting(plot).then(() => idle(drawNext));
};
addEventListener("load", () => setTimeout(() => idle(drawNext), 500));

const theme = document.getElementById("theme");
theme.hidden = false;
const redraw = () => Promise.all(charts.filter((chart) => chart.view).map((chart) => chart.draw()));
const setTheme = (name) => {
  const before = isDark();
  if (name) root.dataset.theme = name; else delete root.dataset.theme;
  return isDark() === before ? null : redraw();
};
theme.append(choose("Colours", [["", "as the system"], ["light", "light"], ["dark", "dark"]], setTheme).element);
system.addEventListener("change", redraw);

let before = null; // how the page was before a print
const prepare = () => {
  if (!before) {
    const closed = [...document.querySelectorAll("details.more:not([open])")].filter((one) => one.querySelector(".plot"));
    before = { theme: root.dataset.theme || "", closed };
    for (const one of closed) one.open = true;
    root.dataset.print = "yes"; // as wide as paper
    root.dataset.theme = "light";
  }
  return Promise.all([redraw(), ...[...waiting.keys()].map(drawWaiting)]);
};
const printAll = () => prepare().then(() => print());
addEventListener("beforeprint", prepare);
addEventListener("afterprint", () => {
  if (!before) return;
  for (const one of before.closed) one.open = false;
  delete root.dataset.print;
  setTheme(before.theme);
  before = null;
});
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "p") { event.preventDefault(); printAll(); }
});
theme.append(make("button", { type: "button", click: printAll }, "Print all charts"));

const follow = () => { // #fairness, #fairness?step=440, #prompts?set=…&prompt=…&order=…
  const [id, query] = location.hash.slice(1).split("?");
  const target = document.getElementById(id) || document.getElementById(decodeURIComponent(id));
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const about = new URLSearchParams(query || "");
  const step = about.get("step");
  if (step) sections.find((section) => section.element.contains(target))?.moveTo(step === "release" ? step : `step ${Number(step).toLocaleString("en")}`);
  if (id === "prompts") promptsShown?.open(about);
  target.scrollIntoView();
};
addEventListener("hashchange", follow);
if (location.hash) follow();
root.dataset.ready = "yes";
