"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98"];
  const DASHES = ["solid", "dashed", "dotted", "dashdot", "dotdash"];
  const FIRST_ROWS = 100;
  const LISTED = 20;
  const ZERO = 0.45; // decades from step 0 to the first step after it

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
  const extremes = (values) => values.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, -Infinity]);
  const named = (step) => (step === null ? "release" : `step ${step.toLocaleString("en")}`);
  const later = (a, b) => (a === null) - (b === null) || a - b;
  const distinct = (values) => [...new Set(values)];
  const choose = (label, options, change) => {
    const select = make("select", { "aria-label": label, change: () => change(select.value) },
      ...options.map(([value, text]) => make("option", { value }, text)));
    return { select, element: make("label", {}, make("span", { class: "label" }, label), select) };
  };
  const boxes = (label, names, chosen, change) =>
    make("fieldset", {}, make("legend", {}, label), ...names.map((name) => {
      const box = make("input", { type: "checkbox", checked: chosen.has(name), change: () => {
        if (box.checked) chosen.add(name); else chosen.delete(name);
        change();
      } });
      return make("label", {}, box, " ", name || "(all)");
    }));

  // Arrays of numbers travel as base64.
  const numbers = (array) =>
    new Float32Array(Uint8Array.from(atob(array.bdata), (letter) => letter.charCodeAt(0)).buffer);

  // ---- tables

  const compare = (a, b) => {
    const [x, y] = [typeof a === "number", typeof b === "number"];
    if (x && y) return a - b;
    if (x !== y) return x ? -1 : 1;
    return String(a ?? "").localeCompare(String(b ?? ""));
  };
  const csv = (table) => {
    const cell = (value) => {
      const text = value === null ? "" : String(value);
      return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    };
    const rows = table.rows.map((row) => row.map(cell).join(","));
    return [table.columns.map(cell).join(","), ...rows].join("\r\n") + "\r\n";
  };
  const fill = (details) => {
    if (details.dataset.filled) return;
    details.dataset.filled = "yes";
    const source = data.tables[Number(details.dataset.table)];
    const length = source.values.length ? source.values[0].length : 0;
    const rows = Array.from({ length }, (_, at) => source.values.map((column) => column[at]));
    const table = { columns: source.columns, rows };
    const body = make("tbody");
    let shown = FIRST_ROWS;
    let order = null;
    const draw = () => {
      const sorted = order === null ? rows : [...rows].sort((a, b) => order.sign * compare(a[order.at], b[order.at]));
      body.replaceChildren(...sorted.slice(0, shown).map((row) => make("tr", {}, ...row.map((value, at) =>
        make("td", { class: source.numeric[at] ? "n" : String(value).length > 40 ? "long" : null }, digits(value))))));
      more.hidden = shown >= rows.length;
    };
    const heads = source.columns.map((name, at) => make("th",
      { scope: "col", class: source.numeric[at] ? "n" : null },
      make("button", { type: "button", click: (event) => {
        const sign = order && order.at === at ? -order.sign : 1;
        order = { at, sign };
        for (const head of heads) head.removeAttribute("aria-sort");
        event.currentTarget.parentElement.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        draw();
      } }, name)));
    const more = make("button", { type: "button", click: () => { shown = Infinity; draw(); } }, `Show all ${length.toLocaleString("en")} rows`);
    const save = make("button", { type: "button", click: () => {
      const link = make("a", { href: URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" })), download: `${source.name}.csv` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    } }, "Save as CSV");
    draw();
    details.append(
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table ${Number(details.dataset.table) + 1}: ${source.name}` },
        make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)),
      make("div", { class: "actions" }, more, save));
    if (length < source.total) details.append(make("p", { class: "note" },
      `The first ${length.toLocaleString("en")} of ${source.total.toLocaleString("en")} rows${source.whole ? `; ${source.whole}` : ""}.`));
  };
  for (const details of document.querySelectorAll("details.table")) {
    details.addEventListener("toggle", () => details.open && fill(details));
    if (details.open) fill(details);
  }

  // ---- figures

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const touch = matchMedia("(pointer: coarse)").matches;
  const plots = new Set();

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
      this.recolour();
      this.element.dataset.drawn = "yes";
    }

    of(type) { return this.models.filter((model) => model.type === type); }

    tagged(tag) { return this.models.filter((model) => model.tags.includes(tag)); }

    recolour() {
      if (!this.models) return;
      const [ink, muted, line, card] = ["--ink", "--muted", "--grid", "--card"].map(css);
      for (const model of this.models) {
        if (model.type.endsWith("Axis")) model.setv({ axis_label_text_color: ink, major_label_text_color: ink,
          axis_line_color: muted, major_tick_line_color: muted, minor_tick_line_color: null });
        else if (model.type === "Legend") model.setv({ label_text_color: ink, background_fill_color: null, border_line_color: null });
        else if (model.type === "Grid" && model.grid_line_color !== null) model.grid_line_color = line;
        else if (model.type === "Span") model.line_color = muted;
        else if (model.type === "Label" && model.tags.includes("ink")) model.text_color = ink;
        else if (model.type === "ColorBar") model.setv({ background_fill_color: card, major_label_text_color: ink, title_text_color: ink });
      }
    }
  }

  const round = (last) => { // a few round numbers from 0 to the last
    const rough = last / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const size = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
    return Array.from({ length: Math.floor(last / size) + 1 }, (_, at) => at * size);
  };

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
      this.axisNow = "log";
      if (this.meta.height) this.element.style.minHeight = `${this.meta.height}px`;
    }

    async draw(state) {
      if (this.plot) return;
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
      const last = Math.max(1, ...this.steps.filter((step) => step !== null));
      const ticks = axis === "log" ? this.meta.axis.ticks
        : [...round(last).map((step) => [step, step.toLocaleString("en")]), ...(this.meta.axis.release ? [[1.06 * last, "release"]] : [])];
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

  const sections = [];
  for (const section of document.querySelectorAll("section.analysis")) {
    const figures = [...section.querySelectorAll("[data-figure]")].map((holder) =>
      new Figure(holder, data.figures[Number(holder.dataset.figure)]));
    if (!figures.length) continue;
    const series = distinct(figures.flatMap((figure) => figure.series));
    const groups = distinct(figures.flatMap((figure) => figure.groups));
    const steps = distinct(figures.flatMap((figure) => figure.steps)).sort(later);
    const state = { series: new Set(series.length > 3 ? series.slice(0, 1) : series), off: new Set(),
      step: steps.length ? steps[steps.length - 1] : null, axis: "log" };
    const refresh = () => figures.forEach((figure) => figure.show(state));
    const controls = section.querySelector(".controls");
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
      const slider = make("input", { type: "range", min: 0, max: steps.length - 1, value: steps.length - 1, step: 1,
        "aria-valuetext": named(state.step), input: () => {
          state.step = steps[Number(slider.value)];
          now.textContent = named(state.step);
          slider.setAttribute("aria-valuetext", named(state.step));
          refresh();
        } });
      controls.append(make("label", {}, make("span", { class: "label" }, "Checkpoint"), slider, " ", now));
      if (figures.some((figure) => figure.training)) controls.append(choose("Step axis",
        [["log", "logarithmic"], ["linear", "linear"]], (value) => { state.axis = value; refresh(); }).element);
    }
    controls.hidden = !controls.children.length;
    sections.push({ figures, state });
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

  // ---- prompts

  const visible = (text) => String(text).replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
  const TITLES = { share: "Share among the options", probability: "Probability in the vocabulary", logprob: "Log-probability, nats" };

  class Prompts {
    constructor(holder, sets) {
      this.sets = sets;
      this.list = make("div");
      this.detail = make("div");
      this.where = make("div", { class: "plot", role: "img", tabindex: "0" });
      this.legend = make("p", { class: "note" });
      this.plot = new Plot(this.where);
      this.controls = make("div", { class: "controls" });
      holder.append(this.controls, make("div", { class: "prompts" }, this.list, this.detail));
      this.choose(0);
    }

    choose(at) {
      this.set = this.sets[at];
      this.own = this.set.series.map((series) => ({ ...series, logprob: numbers(series.logprob) }));
      this.state = { series: 0, list: "moved", before: 0, after: this.own[0].anchors.length - 1, find: "",
        on: new Set(this.own.slice(0, 3).map((series) => series.name)), y: this.set.measure };
      this.widths = this.set.prompts.reduce((ends, prompt) => [...ends, ends[ends.length - 1] + prompt.options.length], [0]);
      this.setControls(at);
      this.refresh();
    }

    setControls(at) {
      const { state } = this;
      const parts = [];
      if (this.sets.length > 1) {
        const sets = choose("Prompt set", this.sets.map((set, index) => [index, set.name]), (value) => this.choose(Number(value)));
        sets.select.value = at;
        parts.push(sets.element);
      }
      if (this.own.length > 1) parts.push(choose("Listed by", this.own.map((series, index) => [index, series.name]),
        (value) => { state.series = Number(value); state.before = 0; state.after = this.own[state.series].anchors.length - 1; this.setControls(at); this.refresh(); }).element);
      if (this.own.length > 1) parts[parts.length - 1].querySelector("select").value = state.series;
      const anchors = this.own[state.series].anchors.map((step, index) => [index, named(step)]);
      const between = ["before", "after"].map((end) => {
        const one = choose(end === "before" ? "From" : "To", anchors, (value) => { state[end] = Number(value); this.refresh(); });
        one.select.value = state[end];
        one.element.hidden = state.list !== "differ";
        return one.element;
      });
      if (anchors.length > 1) {
        const list = choose("Prompts", [["moved", "that move most through training"], ["differ", "that differ most between two checkpoints"]],
          (value) => { state.list = value; for (const element of between) element.hidden = value !== "differ"; this.refresh(); });
        list.select.value = state.list;
        parts.push(list.element, ...between);
      }
      const find = make("input", { type: "search", value: state.find, input: () => { state.find = find.value; this.refresh(true); } });
      parts.push(make("label", {}, make("span", { class: "label" }, "Find by id or text"), find));
      this.controls.replaceChildren(...parts);
    }

    rows() {
      const series = this.own[this.state.series];
      const text = this.state.find.trim().toLowerCase();
      if (text) return this.set.prompts.map((prompt, at) => ({ prompt, at }))
        .filter(({ prompt }) => `${prompt.id}\n${prompt.text}`.toLowerCase().includes(text))
        .map(({ at }) => ({ at, note: "" }));
      if (this.state.list === "moved" || series.anchors.length < 2) return series.moved.map(([at, option, movement]) =>
        ({ at, note: `${option} moves by ${digits(movement)}` }));
      const [a, b] = [this.state.before, this.state.after];
      const [first, second] = a < b ? [a, b] : [b, a];
      const pair = series.pairs.find((one) => one.from === first && one.to === second);
      return (pair ? pair.top : []).map(([at, option, before, after]) => {
        const [from, to] = a < b ? [before, after] : [after, before];
        return { at, note: `${option}: ${digits(from)} → ${digits(to)}` };
      });
    }

    refresh(quiet) {
      const all = this.rows();
      const rows = all.slice(0, LISTED);
      const first = all.length > LISTED ? `, the first ${LISTED}:` : "";
      const caption = this.state.find.trim() ? `${all.length} found among the ${this.set.prompts.length} in this page${first}`
        : `Of ${this.set.total.toLocaleString("en")} prompts; ${TITLES[this.set.measure].toLowerCase()}`;
      if (!quiet || !rows.some((row) => row.at === this.at)) this.at = rows.length ? rows[0].at : null;
      this.buttons = rows.map((row) => make("button", { type: "button", class: "link", "aria-current": String(row.at === this.at), click: (event) => {
        this.at = row.at;
        for (const button of this.buttons) button.setAttribute("aria-current", String(button === event.currentTarget));
        this.show();
      } }, this.label(this.set.prompts[row.at])));
      this.list.replaceChildren(make("p", { class: "note" }, rows.length ? caption : this.state.find.trim()
        ? `None among the ${this.set.prompts.length} in this page.` : "None: choose two different checkpoints."),
        make("ol", {}, ...rows.map((row, index) => make("li", {}, this.buttons[index], " ", make("span", { class: "note" }, row.note),
          make("div", { class: "excerpt" }, this.set.prompts[row.at].text)))));
      this.show();
    }

    label(prompt) {
      const order = prompt.order === null || prompt.order === 0 ? "" : ` (order ${prompt.order})`;
      return `${prompt.id}${order}`;
    }

    show() {
      if (this.at === null) { this.detail.replaceChildren(); return; }
      const prompt = this.set.prompts[this.at];
      this.where.setAttribute("aria-label", `Options of ${prompt.id} through training`);
      const kinds = prompt.options.length > 1 ? ["share", "probability", "logprob"] : ["probability", "logprob"];
      const kind = choose("Show", kinds.map((name) => [name, TITLES[name]]), (value) => { this.state.y = value; this.draw(); });
      if (!kinds.includes(this.state.y)) this.state.y = kinds[0];
      kind.select.value = this.state.y;
      const controls = make("div", { class: "controls" }, kind.element);
      if (this.own.length > 1) controls.prepend(boxes("Models", this.own.map((series) => series.name), this.state.on, () => this.draw()));
      this.detail.replaceChildren(make("h3", {}, this.label(prompt)), make("div", { class: "prompt-text" }, prompt.text),
        make("p", { class: "note" }, prompt.options.map((one) => `${visible(one.continuation || one.option)}${one.answer ? " (answer)" : ""}`).join(" | ")),
        controls, this.legend, this.where);
      this.draw();
    }

    async start(item) {
      await this.plot.embed(item);
      this.draw();
    }

    draw() {
      const prompt = this.set.prompts[this.at];
      if (!this.plot.models || !prompt) return;
      const first = this.widths[this.at];
      const steps = distinct(this.own.flatMap((series) => series.steps)).sort(later);
      const positive = steps.filter((step) => step !== null && step > 0);
      const [low, high] = positive.length ? [positive[0], positive[positive.length - 1]] : [1, 1];
      const decades = (step) => Math.log10(step / low) + ZERO;
      const place = (step) => (step === null ? decades(high) + 0.3 : step === 0 ? 0 : decades(step));
      const lines = this.own.flatMap((series, at) => this.state.on.has(series.name) ? prompt.options.map((option, index) => ({
        name: this.own.length > 1 ? `${option.option}, ${series.name}` : option.option,
        xs: series.steps.map(place), ys: this.scores(series, first, prompt.options.length, index),
        colour: PALETTE[index % PALETTE.length], dash: DASHES[at % DASHES.length], steps: series.steps,
      })) : []);
      const [curves, points] = ["curves", "points"].map((tag) => this.plot.tagged(tag)[0]);
      curves.data = { xs: lines.map((line) => line.xs), ys: lines.map((line) => line.ys),
        colour: lines.map((line) => line.colour), dash: lines.map((line) => line.dash) };
      const each = (what) => lines.flatMap(what);
      points.data = { x: each((line) => line.xs), y: each((line) => line.ys), colour: each((line) => line.xs.map(() => line.colour)),
        size: each((line) => line.xs.map(() => (line.xs.length > 40 ? 2 : 5))), name: each((line) => line.xs.map(() => line.name)),
        when: each((line) => line.steps.map(named)), told: each((line) => line.ys.map(digits)) };
      const known = points.data.y.filter(Number.isFinite);
      const [least, most] = extremes(known);
      const top = this.state.y === "share" ? 1 : this.state.y === "logprob" ? 0 : Math.max(1e-12, most);
      const bottom = this.state.y === "logprob" ? Math.min(-1, least) : 0;
      const tens = Array.from({ length: 12 }, (_, power) => 10 ** power).filter((step) => step >= low && step <= high);
      const ticks = distinct([...(steps.includes(0) ? [0] : []), ...(tens.length > 1 ? tens : [low, high]), ...(steps.includes(null) ? [null] : [])]);
      const [axis] = this.plot.tagged("steps");
      axis.major_label_overrides = new Map(ticks.map((step) => [place(step), step === null ? "release" : step.toLocaleString("en")]));
      axis.ticker.ticks = ticks.map(place);
      const [plot] = this.plot.tagged("panel");
      const ends = [place(steps[0]), place(steps[steps.length - 1])];
      plot.x_range.setv({ start: ends[0] - 0.1, end: ends[1] + 0.1 });
      plot.y_range.setv({ start: bottom - 0.02 * (top - bottom), end: top + 0.04 * (top - bottom) });
      this.plot.tagged("values")[0].axis_label = TITLES[this.state.y];
      this.legend.replaceChildren(...lines.flatMap((line) => {
        const swatch = make("span", { class: "swatch" });
        swatch.style.borderTop = `3px ${line.dash === "solid" ? "solid" : "dashed"} ${line.colour}`;
        return [swatch, ` ${line.name} `];
      }));
    }

    scores(series, first, options, index) {
      const all = this.widths[this.widths.length - 1];
      return series.steps.map((_, at) => {
        const row = Array.from({ length: options }, (_, one) => series.logprob[at * all + first + one]);
        if (this.state.y === "logprob") return row[index];
        if (this.state.y === "probability") return Math.exp(row[index]);
        const top = Math.max(...row);
        return Math.exp(row[index] - top) / row.reduce((sum, value) => sum + Math.exp(value - top), 0);
      });
    }
  }
  const promptView = document.getElementById("prompt-view");
  if (promptView) {
    const prompts = new Prompts(promptView, data.prompts);
    whenNear(promptView, () => prompts.start(data.promptPlot));
  }

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

  // ---- theme and print

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
})();
