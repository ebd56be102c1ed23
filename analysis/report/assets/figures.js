// Figures of Bokeh's, and the controls that all figures of an analysis share.

const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const touch = matchMedia("(pointer: coarse)").matches;
const LEGEND_ROW = 28; // pixels: a label and what is between two
const plots = new Set();
// What colours of lines and texts are on a dark page, where theirs has a contrast of less than 4.
const DARK = { "#0072b2": "#4ba3d9", "#8e5ea2": "#b98acb", "#1f2329": "#e4e7eb", "#99226b": "#e8a8cf", "#5c4500": "#f0c04a",
  "#30209a": "#8f80ff", "#4c2c5a": "#e6d3ee", "#00523c": "#7fc9ae", "#a84a00": "#f08c4a" };
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
const shade = (colour) => (isDark() && DARK[colour]) || colour;

class Plot { // a figure of Bokeh's in an element
  constructor(element) {
    this.element = element;
    plots.add(this);
  }

  async embed(item) {
    this.element.replaceChildren();
    const views = await Bokeh.embed.embed_item(item, this.element);
    this.models = [...views].flatMap((view) => [...view.model.references()]);
    if (touch) for (const bar of this.of("Toolbar")) bar.active_drag = null;
    for (const title of this.tagged("title")) title.visible = false;
    for (const legend of this.of("Legend")) { // as many columns as fit
      const longest = Math.max(1, ...legend.items.map((item) => String(item.label?.value ?? "").length));
      legend.ncols = Math.max(1, Math.floor((this.element.clientWidth - 90) / (7 * longest + 48)));
    }
    this.legends = this.of("Legend").map((legend) => {
      const plot = this.models.find((model) => model.above?.includes(legend));
      return { legend, plot, height: plot.height, rows: legend.tags[0] };
    });
    this.shaded = this.models.flatMap((model) => ["line_color", "fill_color", "text_color"].flatMap((name) => {
      const colour = model[name]?.value ?? model[name];
      return colour in DARK ? [{ model, name, colour, spec: colour !== model[name] }] : [];
    }));
    this.recolour();
    this.element.dataset.drawn = "yes";
  }

  fit() { // a legend that grows must not take the room of what is drawn
    for (const { legend, plot, height, rows } of this.legends) {
      const shown = legend.items.filter((item) => item.visible).length;
      plot.height = height + LEGEND_ROW * Math.max(0, Math.ceil(shown / legend.ncols) - rows);
    }
  }

  of(type) { return this.models.filter((model) => model.type === type); }

  tagged(tag) { return this.models.filter((model) => model.tags.includes(tag)); }

  recolour() {
    if (!this.models) return;
    const [ink, muted, line, card] = ["--ink", "--muted", "--grid", "--card"].map(css);
    for (const { model, name, colour, spec } of this.shaded) model[name] = spec ? { value: shade(colour) } : shade(colour);
    for (const model of this.models) {
      if (model.type.endsWith("Axis")) model.setv({ axis_label_text_color: ink, major_label_text_color: ink,
        axis_line_color: muted, major_tick_line_color: muted, minor_tick_line_color: null });
      else if (model.type === "Legend") model.setv({ label_text_color: ink, background_fill_color: null, border_line_color: null });
      else if (model.type === "Grid" && model.grid_line_color !== null) model.grid_line_color = line;
      else if (model.type === "Span") model.line_color = muted;
      else if (model.type === "Label" && model.tags.includes("ink")) model.text_color = ink;
      else if (model.type === "Text" && model.tags.includes("ink")) model.text_color = { value: ink };
      else if (model.type === "ColorBar") model.setv({ background_fill_color: card, major_label_text_color: ink, title_text_color: ink });
    }
  }
}

class Figure {
  constructor(holder, spec) {
    this.holder = holder;
    this.element = holder.querySelector(".plot");
    this.out = holder.querySelector(".readout");
    this.item = spec.item;
    this.meta = spec.meta;
    this.traces = spec.traces;
    this.series = distinct(this.traces.map((trace) => trace.series)).filter((name) => name !== "");
    this.groups = distinct(this.traces.map((trace) => trace.group)).filter((group) => group !== "");
    this.steps = this.meta.steps || [];
    this.training = this.meta.kind === "training";
    this.axisNow = this.training ? this.meta.axis.scale : "log";
    if (this.meta.height) this.element.style.minHeight = `${this.meta.height}px`;
  }

  draw(state) {
    this.drawing ??= this.begin(state);
    return this.drawing;
  }

  async begin(state) {
    this.plot = new Plot(this.element);
    await this.plot.embed(this.item);
    this.renderers = this.plot.of("GlyphRenderer").filter((one) => one.tags.length && one.tags[0].series !== undefined);
    this.show(state);
  }

  show(state) {
    if (!this.renderers) return;
    const only = this.meta.one_series ? this.series.find((name) => state.series.has(name)) : null;
    const nearest = new Map(this.series.map((name) => [name, this.nearest(name, state.step)]));
    for (const renderer of this.renderers) {
      const tag = renderer.tags[0];
      renderer.visible = (tag.series === "" || (only === null ? state.series.has(tag.series) : tag.series === only))
        && (tag.group === "" || !state.off.has(tag.group));
      if (tag.steps) renderer.view.filter.indices = this.places(renderer, nearest.get(tag.series));
    }
    for (const legend of this.plot.of("Legend"))
      for (const item of legend.items) item.visible = item.renderers.some((renderer) => renderer.visible);
    this.plot.fit();
    if (this.training) this.cursor(state);
    this.read(state, nearest);
  }

  nearest(series, step) {
    const own = distinct(this.traces.filter((trace) => trace.series === series).flatMap((trace) => trace.steps || [])).sort(later);
    const before = own.filter((one) => later(one, step) <= 0);
    return before.length ? before[before.length - 1] : own[0];
  }

  places(renderer, step) {
    return Array.from(renderer.data_source.data.step || []).flatMap((one, at) => ((step === null ? Number.isNaN(one) : one === step) ? [at] : []));
  }

  find(renderer, step) { return this.places(renderer, step)[0] ?? -1; }

  cursor(state) {
    if (state.axis !== this.axisNow) this.place(state.axis);
    let location = null;
    for (const renderer of this.renderers) {
      const at = this.find(renderer, state.step);
      if (at >= 0 && renderer.tags[0].role !== "band") { location = renderer.data_source.data.x[at]; break; }
    }
    for (const span of this.plot.tagged("cursor")) span.setv(location === null ? { visible: false } : { visible: true, location });
  }

  place(axis) { // training steps on a linear axis, or in decades
    this.axisNow = axis;
    for (const source of new Set(this.renderers.map((renderer) => renderer.data_source)))
      if (source.data.linear) source.data = { ...source.data, x: source.data[axis] };
    const ticks = this.meta.axis.ticks[axis];
    for (const model of this.plot.tagged("steps")) {
      model.major_label_overrides = new Map(ticks);
      model.ticker.ticks = ticks.map(([place]) => place);
    }
    const places = this.renderers.flatMap((renderer) => (renderer.data_source.data.linear ? Array.from(renderer.data_source.data.x) : []));
    const [low, high] = extremes(places);
    const margin = 0.03 * (high - low) || 1;
    for (const range of new Set(this.plot.models.filter((model) => model.x_range).map((model) => model.x_range)))
      range.setv({ start: low - margin, end: high + margin });
  }

  read(state, nearest) {
    if (this.meta.kind === "fixed") return;
    if (this.meta.kind === "checkpoint") {
      this.out.textContent = distinct(this.series.filter((name) => state.series.has(name)).map((name) => named(nearest.get(name) ?? null))).join(", ");
      return;
    }
    const found = [];
    let hidden = false;
    for (const renderer of this.renderers) {
      const tag = renderer.tags[0];
      const alone = state.step === null && tag.role === "point"; // a release is beside the lines
      const at = tag.role === "line" || alone ? this.find(renderer, state.step) : -1;
      if (at < 0) continue;
      if (!renderer.visible) { hidden = true; continue; }
      const { value, told } = renderer.data_source.data;
      const label = [this.series.length > 1 ? tag.series : "", tag.group].filter((text) => text).join(" ");
      found.push({ label, what: told ? told[at].slice(0, told[at].lastIndexOf(": ")) : "", value: digits(value[at]) });
    }
    const several = distinct(found.map(({ what }) => what)).length > 1; // what differs from panel to panel
    const shown = distinct(found.map(({ label, what, value }) => [label, several ? (label ? `(${what})` : what) : "", value].filter((text) => text).join(" ")));
    this.out.textContent = `At ${named(state.step)}: ${shown.slice(0, 12).join(" · ") || (hidden ? "nothing that is shown was measured" : "nothing was measured")}`
      + (shown.length > 12 ? ` · and ${shown.length - 12} more` : "");
  }
}

// The address of what is looked at: a section or figure, and a checkpoint or prompt in it.
const address = (id, about) => history.replaceState(null, "", `#${id}?${new URLSearchParams(about)}`);
const sections = [];
for (const section of document.querySelectorAll("section.analysis")) {
  const figures = [...section.querySelectorAll("[data-figure]")].map((holder) =>
    new Figure(holder, data.figures[Number(holder.dataset.figure)]));
  if (!figures.length) continue;
  const series = distinct(figures.flatMap((figure) => figure.series));
  const groups = distinct(figures.flatMap((figure) => figure.groups));
  const steps = distinct(figures.flatMap((figure) => figure.steps)).sort(later);
  const training = figures.find((figure) => figure.training);
  const about = figures[0].holder.dataset.series; // the model that the message is about
  const state = { series: new Set(about ? [about] : series.length > 3 ? series.slice(0, 1) : series), off: new Set(),
    step: steps.length ? steps[steps.length - 1] : null, axis: training ? training.meta.axis.scale : "log" };
  const refresh = () => figures.forEach((figure) => figure.show(state));
  const controls = section.querySelector(".controls");
  let moveTo = null;
  if (series.length > 1) controls.append(boxes("Model", series, state.series, refresh));
  if (groups.length > 1 && groups.length <= 12) {
    const on = new Set(groups);
    controls.append(boxes("Show", groups, on, () => {
      state.off = new Set(groups.filter((group) => !on.has(group)));
      refresh();
    }));
  }
  if (steps.length > 1) {
    const now = make("output", {}, named(state.step));
    moveTo = (step) => {
      state.step = step;
      slider.value = steps.indexOf(step);
      now.textContent = named(step);
      slider.setAttribute("aria-valuetext", named(step));
      refresh();
    };
    const slider = make("input", { type: "range", min: 0, max: steps.length - 1, value: steps.length - 1, step: 1,
      "aria-valuetext": named(state.step), input: () => moveTo(steps[Number(slider.value)]),
      change: () => address(section.id, { step: state.step ?? "release" }) });
    controls.append(make("label", {}, make("span", { class: "label" }, "Checkpoint"), slider, " ", now));
    if (training) {
      const axis = choose("Step axis", [["log", "logarithmic"], ["linear", "linear"]], (value) => { state.axis = value; refresh(); });
      axis.select.value = state.axis;
      controls.append(axis.element);
    }
  }
  controls.hidden = !controls.children.length;
  controls.prepend(make("p", { class: "moves" }, `Moves ${controls.dataset.moves}`));
  sections.push({ section, figures, state, steps, moveTo });
}
const near = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    near.unobserve(entry.target);
    const draw = waiting.get(entry.target);
    waiting.delete(entry.target);
    if (draw) draw();
  }
}, { rootMargin: "400px" });
const waiting = new Map();
const whenNear = (element, draw) => { waiting.set(element, draw); near.observe(element); };
for (const { figures, state } of sections)
  for (const figure of figures) whenNear(figure.holder, () => figure.draw(state));
