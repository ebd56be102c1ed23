// Charts: Vega-Lite specifications, drawn as SVG. A browser scales SVG, so charts fit paper, too.

const ZOOM = 1.5; // pixels of a point, the unit of the specifications
const LINES = 6; // lines in a plot; of more, those of the first model are shown at first, unless a crowd has thick ones
const UNSEEN = 700; // pixels: the width of a chart that is folded
// Colours on a dark page, where those of a light one have a contrast of less than 4.
const DARK = { "#1f2329": "#e4e7eb", "#7d828b": "#9aa1ab", "#0072b2": "#4ba3d9", "#8e5ea2": "#b98acb", "#99226b": "#e8a8cf",
  "#5c4500": "#f0c04a", "#30209a": "#8f80ff" };
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
const shaded = (spec) => JSON.parse(JSON.stringify(spec), (_, value) => (isDark() && DARK[value]) || value);

const rowsOf = ({ columns, values }) => {
  const whole = values.map(cells);
  return Array.from({ length: whole.length ? whole[0].length : 0 }, (_, row) =>
    Object.fromEntries(columns.map((name, at) => [name, whole[at][row]])));
};
const walk = (part, visit) => {
  if (part === null || typeof part !== "object") return;
  visit(part);
  for (const [name, each] of Object.entries(part)) if (name !== "datasets") walk(each, visit);
};
const composed = (spec) => spec.vconcat || spec.hconcat || spec.facet;

// The width of all plots of a specification; what is side by side on paper is stacked on a phone.
const fit = (spec, width) => {
  if (spec.hconcat && width < 300) { spec.vconcat = spec.hconcat; delete spec.hconcat; }
  const parts = spec.vconcat || spec.hconcat || [];
  for (const part of parts) fit(part, spec.hconcat ? width / parts.length - 30 : width);
  if (spec.facet) {
    spec.columns = Math.max(1, Math.min(spec.columns || 1, Math.floor(width / 100)));
    fit(spec.spec, width / spec.columns - 15);
  } else if (!parts.length) spec.width = Math.max(60, width);
};

class Chart {
  constructor(holder, { spec, datasets }) {
    this.holder = holder;
    this.plot = holder.querySelector(".plot");
    this.tools = holder.querySelector(".tools");
    const { steps, ...meta } = spec.usermeta;
    Object.assign(this, { spec, packed: datasets, steps, meta, scale: steps?.scale, shown: "" });
    new ResizeObserver(() => {
      const width = this.plot.clientWidth;
      if (this.view && width && Math.abs(width - this.width) > 8) this.draw();
    }).observe(this.plot);
  }

  read() { // what is needed once the chart is drawn
    this.datasets ??= Object.fromEntries(Object.entries(this.packed).map(([name, packed]) => [name, rowsOf(packed)]));
    if (this.labels) return;
    const rows = Object.values(this.datasets).flat();
    const at = (row) => row.checkpoint_index ?? row.at;
    walk(this.spec, (part) => {
      if (part.name === "checkpoint" && "value" in part) this.parameter = part;
      if (part.bind === "legend") this.field = part.select.fields[0];
    });
    const known = new Map(rows.filter((row) => row.checkpoint && at(row) !== undefined).map((row) => [row.checkpoint, at(row)]));
    this.labels = this.parameter || this.steps ? [...known.keys()].sort((a, b) => known.get(a) - known.get(b)) : [];
    this.places = known;
    const last = this.parameter ? this.labels.find((label) => known.get(label) === this.parameter.value) : this.labels[this.labels.length - 1];
    this.label = this.labels.includes(this.label) ? this.label : last;
    this.first = last;
    const texts = (rows, field) => distinct(rows.map((row) => row[field])).filter((name) => typeof name === "string");
    this.names = this.field ? texts(rows, this.field) : [];
    const together = Object.values(this.datasets).some((rows) => texts(rows, "series").length > 1); // in one plot
    this.models = this.steps && this.names.length && this.field !== "series" && together ? texts(rows, "series") : [];
    const crowd = rows.some((row) => "bold" in row);
    this.model = !crowd && this.models.length * this.names.length > LINES ? this.models[0] : "";
    this.addTools();
  }

  addTools() {
    if (this.names.length > 1) this.tools.append(choose("Show", [["", "all"], ...this.names.map((name) => [name, name])],
      (name) => { this.shown = name; this.draw(); }).element);
    if (this.models.length > 1) {
      const models = choose("Model", [["", "all"], ...this.models.map((name) => [name, name])], (name) => { this.model = name; this.draw(); });
      models.select.value = this.model;
      this.tools.append(models.element);
    }
    if (this.steps) {
      const scales = choose("Steps", [["linear", "linear"], ["symlog", "logarithmic"]], (scale) => { this.scale = scale; this.draw(); });
      scales.select.value = this.scale;
      this.tools.append(scales.element);
    }
    const save = (type) => make("button", { type: "button", click: async () => {
      const href = await this.view.toImageURL(type, 3);
      make("a", { href, download: `${this.holder.id}.${type}` }).click();
    } }, type.toUpperCase());
    if (this.holder.id) this.tools.append(make("span", { class: "save" }, make("span", { class: "label" }, "Save"), save("svg"), save("png")));
    if (this.labels.length < 2) return;
    this.now = make("output", {});
    this.slider = make("input", { type: "range", min: 0, max: this.labels.length - 1, step: 1, "aria-label": `Checkpoint of ${this.meta.title}`,
      input: () => this.section.moveTo(this.labels[Number(this.slider.value)]),
      change: () => this.section.note(stepOf(this.label)) });
    this.values = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Values of ${this.meta.title}` });
    const slider = make("label", { class: "checkpoint" }, "Checkpoint ", this.slider, " ", this.now);
    if (this.parameter) this.plot.before(slider);
    else this.plot.after(make("details", { class: "values" }, make("summary", {}, "Values at a checkpoint"), slider, this.values));
    this.show();
  }

  moveTo(label) {
    if (this.labels && !this.labels.includes(label)) return;
    this.label = label;
    if (!this.view || !this.slider) return;
    if (this.parameter) this.view.signal("checkpoint", this.places.get(label)).runAsync();
    this.show();
  }

  show() { // the checkpoint's name, and a table of its values
    this.slider.value = this.labels.indexOf(this.label);
    this.slider.setAttribute("aria-valuetext", this.label);
    this.now.textContent = this.label;
    const caption = this.holder.querySelector("figcaption");
    if (this.parameter && caption) { // which names the checkpoint that paper shows
      this.caption ??= caption.textContent;
      caption.textContent = this.caption.replace(this.first, this.label);
    }
    if (!this.parameter) this.values.replaceChildren(...this.valueTables());
  }

  valueTables() { // one of each plot of the chart, with the columns of its tooltips
    const found = new Map();
    const visit = (part, data, encoding) => {
      const name = part.data?.name ?? data;
      const all = { ...encoding, ...part.encoding };
      const tips = [all.tooltip].flat().filter((tip) => tip?.field);
      if (part.mark && tips.some((tip) => tip.field === "checkpoint")) found.set(name + tips.map((tip) => tip.field), { name, tips });
      for (const each of [...(part.layer || []), ...(part.vconcat || []), ...(part.hconcat || []), ...(part.spec ? [part.spec] : [])]) visit(each, name, all);
    };
    visit(this.spec, null, {});
    return [...found.values()].map(({ name, tips }) => {
      const columns = tips.filter((tip) => tip.field !== "checkpoint");
      const rows = (this.datasets[name] || []).filter((row) => row.checkpoint === this.label).slice(0, 40);
      return make("table", {}, make("thead", {}, make("tr", {}, ...columns.map((tip) => make("th", { scope: "col" }, tip.title ?? tip.field)))),
        make("tbody", {}, ...rows.map((row) => make("tr", {}, ...columns.map((tip) =>
          make("td", { class: typeof row[tip.field] === "number" ? "n" : null }, digits(row[tip.field])))))));
    });
  }

  ready() { // the specification as it is drawn now
    const spec = shaded(this.spec);
    let datasets = this.datasets;
    delete spec.usermeta;
    if (this.steps && this.scale !== this.steps.scale) {
      const { scale, ticks, release } = this.steps;
      const old = JSON.stringify(ticks[scale]);
      walk(spec, ({ x }) => {
        if (x?.scale?.type !== scale || JSON.stringify(x.axis?.values) !== old) return;
        x.scale.type = this.scale;
        if (this.scale === "symlog") x.scale.constant = this.steps.constant; else delete x.scale.constant;
        x.axis = { ...x.axis, values: ticks[this.scale], labelExpr: x.axis.labelExpr.replace(`== ${release[scale]} `, `== ${release[this.scale]} `) };
      });
      const moved = (row) => (row.step === null && row.at === release[scale] ? { ...row, at: release[this.scale] } : row);
      datasets = Object.fromEntries(Object.entries(datasets).map(([name, rows]) => [name, rows.map(moved)]));
    }
    if (this.model) datasets = Object.fromEntries(Object.entries(datasets).map(([name, rows]) =>
      [name, rows.filter((row) => row.series === undefined || row.series === this.model)]));
    walk(spec, (part) => {
      if (part.type === "log") delete part.zero; // Vega-Lite drops it, too, with a warning
      if (part.bind === "legend" && this.shown) part.value = [{ [this.field]: this.shown }];
      if (this.parameter && part.name === "checkpoint" && "value" in part) part.value = this.places.get(this.label) ?? part.value;
    });
    this.width = this.plot.clientWidth;
    const points = (this.width || UNSEEN) / ZOOM;
    if (composed(spec)) fit(spec, points - 60);
    else Object.assign(spec, { width: points, autosize: { type: "fit-x", contains: "padding" } });
    return { ...spec, datasets };
  }

  replace(spec, rows, steps) { // another specification with the same tools
    Object.assign(this, { spec, steps, datasets: { rows } });
    if (this.view) this.draw();
  }

  draw() { // one after the other
    this.drawing = Promise.resolve(this.drawing).then(() => this.embed());
    return this.drawing;
  }

  async embed() {
    this.read();
    this.view?.finalize();
    const { view } = await vegaEmbed(this.plot, this.ready(), { mode: "vega-lite", ast: true, renderer: "svg", actions: false, logLevel: 1,
      tooltip: { theme: isDark() ? "dark" : "light" }, config: shaded(data.config) });
    this.view = view;
    this.plot.querySelector("svg").setAttribute("aria-hidden", "true"); // the plot has a text of its own
    this.plot.dataset.drawn = "yes";
  }
}

// The address of what is looked at: a section or chart, and a checkpoint or prompt in it.
const address = (id, about) => history.replaceState(null, "", `#${id}?${new URLSearchParams(about)}`);
const stepOf = (label) => label.replace(/^step |,/g, "");
const sections = [];
for (const element of document.querySelectorAll("section.analysis")) {
  const section = { element, charts: [], note: (step) => address(element.id, { step }),
    moveTo: (label) => section.charts.forEach((chart) => chart.moveTo(label)) };
  for (const holder of element.querySelectorAll("[data-chart]"))
    section.charts.push(Object.assign(new Chart(holder, data.charts[Number(holder.dataset.chart)]), { section }));
  sections.push(section);
}
