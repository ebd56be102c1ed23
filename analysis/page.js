"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
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
  const plain = (text) => // Plotly reads a subset of HTML in names and labels
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
  const digits = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return String(value);
    const size = Math.abs(value);
    return size < 1e-4 || size >= 1e7 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  };
  const named = (step) => (step === null ? "release" : `step ${step.toLocaleString("en")}`);
  const later = (a, b) => (a === null) - (b === null) || a - b;
  const distinct = (values) => [...new Set(values)];
  const choose = (label, options, change) => {
    const select = make("select", { change: () => change(select.value) },
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

  // Arrays of numbers travel as base64, as Plotly writes them.
  const TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array, i2: Int16Array,
    u2: Uint16Array, i1: Int8Array, u1: Uint8Array };
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const values = (array) => {
    if (!array || array.bdata === undefined) return array || [];
    const flat = Array.from(new TYPES[array.dtype](bytes(array.bdata)));
    const width = array.shape ? Number(String(array.shape).split(",")[1]) : 0;
    return width ? Array.from({ length: flat.length / width }, (_, at) => flat.slice(at * width, at * width + width)) : flat;
  };

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
        make("td", source.numeric[at] ? { class: "n" } : {}, digits(value))))));
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
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": source.name },
        make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)),
      make("div", { class: "actions" }, more, save));
    if (length < source.total) details.append(make("p", { class: "note" },
      `The first ${length.toLocaleString("en")} of ${source.total.toLocaleString("en")} rows; logitbank analyze writes all of them with --out.`));
  };
  for (const details of document.querySelectorAll("details.table")) {
    details.addEventListener("toggle", () => details.open && fill(details));
    if (details.open) fill(details);
  }

  // ---- figures

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colours = (layout) => {
    const [ink, muted, line, card, grid] = ["--ink", "--muted", "--line", "--card", "--grid"].map(css);
    const own = { "font.color": ink, "hoverlabel.bgcolor": card, "hoverlabel.bordercolor": line, "hoverlabel.font.color": ink,
      "modebar.color": muted, "modebar.activecolor": ink, "modebar.bgcolor": "rgba(0,0,0,0)" };
    for (const axis of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key)))
      Object.assign(own, { [`${axis}.gridcolor`]: grid, [`${axis}.linecolor`]: muted, [`${axis}.zerolinecolor`]: muted });
    return own;
  };
  const CONFIG = { displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d"], toImageButtonOptions: { format: "svg" } };
  const touch = matchMedia("(pointer: coarse)").matches;
  const drawn = new Map(); // element of a plot → its layout

  const plot = (element, traces, layout) => {
    const own = structuredClone(layout);
    delete own.title;
    Object.assign(own, { autosize: true, width: undefined, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      dragmode: touch ? false : "zoom", uirevision: "kept" });
    own.font = { ...own.font, family: getComputedStyle(document.body).fontFamily };
    own.margin = { t: 40, r: 20, b: 45, l: 60, ...own.margin };
    if (own.height) element.style.height = `${own.height}px`;
    drawn.set(element, own);
    return Plotly.newPlot(element, traces, own, CONFIG).then(() => Plotly.relayout(element, colours(own)));
  };
  const recolour = () => { for (const [element, layout] of drawn) Plotly.relayout(element, colours(layout)); };

  class Figure {
    constructor(holder, spec) {
      this.holder = holder;
      this.plot = holder.querySelector(".plot");
      this.out = holder.querySelector(".readout");
      this.spec = spec;
      this.meta = spec.layout.meta;
      this.traces = spec.data.map((trace) => ({ ...trace.meta, custom: values(trace.customdata), x: trace.x, y: trace.y,
        axis: trace.xaxis || "x", name: trace.name }));
      this.series = distinct(this.traces.map((trace) => trace.series));
      this.groups = distinct(this.traces.map((trace) => trace.group)).filter((group) => group !== "");
      this.steps = this.meta.steps || [];
      this.training = this.meta.kind === "training";
      if (this.meta.height) this.plot.style.height = `${this.meta.height}px`;
    }

    draw(state) {
      if (!this.ready) {
        this.ready = true;
        plot(this.plot, this.spec.data, this.spec.layout);
        this.axisNow = "log";
      }
      this.show(state);
    }

    show(state) {
      if (!this.ready) return;
      const only = this.meta.one_series ? this.series.find((name) => state.series.has(name)) : null;
      const nearest = new Map(this.series.map((name) => [name, this.nearest(name, state.step)]));
      const visible = this.traces.map((trace) => (only === null ? state.series.has(trace.series) : trace.series === only)
        && (trace.group === "" || !state.off.has(trace.group))
        && (this.meta.kind !== "checkpoint" || trace.step === undefined || trace.step === nearest.get(trace.series)));
      Plotly.restyle(this.plot, { visible });
      if (this.training) this.cursor(state);
      this.read(state, visible, nearest);
    }

    nearest(series, step) {
      const own = distinct(this.traces.filter((trace) => trace.series === series && trace.step !== undefined).map((trace) => trace.step)).sort(later);
      const before = own.filter((one) => later(one, step) <= 0);
      return before.length ? before[before.length - 1] : own[0];
    }

    cursor(state) {
      if (state.axis !== this.axisNow) this.place(state.axis);
      const shapes = [...(this.spec.layout.shapes || [])];
      for (const axis of distinct(this.traces.map((trace) => trace.axis))) {
        const at = this.position(axis, state);
        if (at !== null) shapes.push({ type: "line", xref: axis, yref: "paper", x0: at, x1: at, y0: 0, y1: 1,
          line: { color: css("--muted"), width: 1, dash: "dot" } });
      }
      Plotly.relayout(this.plot, { shapes });
    }

    position(axis, state) {
      for (const trace of this.traces) {
        if (trace.axis !== axis || trace.role === "band") continue;
        const found = trace.custom.findIndex((row) => (Array.isArray(row) ? row[0] : row) === state.step);
        if (found >= 0) return (state.axis === "log" ? values(trace.x) : this.linear(trace))[found];
      }
      return null;
    }

    linear(trace) {
      const last = Math.max(1, ...this.steps.filter((step) => step !== null));
      return trace.custom.map((row) => {
        const step = Array.isArray(row) ? row[0] : row;
        return step === null ? 1.06 * last : step;
      });
    }

    place(axis) { // training steps on a linear axis, or as the figure was made
      this.axisNow = axis;
      const own = this.traces.map((trace, at) => ({ trace, at })).filter(({ trace }) => trace.custom.length);
      Plotly.restyle(this.plot, { x: own.map(({ trace }) => (axis === "log" ? values(trace.x) : this.linear(trace))) }, own.map(({ at }) => at));
      const change = {};
      for (const key of Object.keys(this.spec.layout).filter((name) => /^xaxis\d*$/.test(name))) {
        const made = this.spec.layout[key];
        if (!made.tickvals) continue;
        change[`${key}.tickmode`] = axis === "log" ? "array" : "auto";
        change[`${key}.autorange`] = axis !== "log" || !made.range;
        if (axis === "log" && made.range) change[`${key}.range`] = [...made.range];
      }
      Plotly.relayout(this.plot, change);
    }

    read(state, visible, nearest) {
      if (this.meta.kind === "fixed") return;
      if (this.meta.kind === "checkpoint") {
        this.out.textContent = distinct(this.series.filter((name) => state.series.has(name)).map((name) => named(nearest.get(name) ?? null))).join(", ");
        return;
      }
      const found = [];
      this.traces.forEach((trace, index) => {
        if (!visible[index] || trace.role !== "line") return;
        const at = trace.custom.findIndex((row) => (Array.isArray(row) ? row[0] : row) === state.step);
        const label = [this.series.length > 1 ? trace.series : "", trace.group].filter((text) => text).join(" ");
        if (at >= 0) found.push(`${label} ${digits(values(trace.y)[at])}`.trim());
      });
      this.out.textContent = `At ${named(state.step)}: ${found.slice(0, 12).join(" · ") || "nothing was measured"}`
        + (found.length > 12 ? ` · and ${found.length - 12} more` : "");
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
      waiting.get(entry.target)();
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
      this.detail = make("div", { "aria-live": "polite" });
      this.controls = make("div", { class: "controls" });
      holder.append(this.controls, make("div", { class: "prompts" }, this.list, this.detail));
      this.choose(0);
    }

    choose(at) {
      this.set = this.sets[at];
      this.own = this.set.series.map((series) => ({ ...series, name: series.name, logprob: values(series.logprob) }));
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
        .slice(0, LISTED).map(({ at }) => ({ at, note: "" }));
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
      const rows = this.rows();
      const caption = this.state.find.trim() ? `${rows.length} found among the ${this.set.prompts.length} in this page`
        : `Of ${this.set.total.toLocaleString("en")} prompts; ${TITLES[this.set.measure].toLowerCase()}`;
      if (!quiet || !rows.some((row) => row.at === this.at)) this.at = rows.length ? rows[0].at : null;
      this.buttons = rows.map((row) => make("button", { type: "button", class: "link", "aria-current": String(row.at === this.at), click: (event) => {
        this.at = row.at;
        for (const button of this.buttons) button.setAttribute("aria-current", String(button === event.currentTarget));
        this.show();
      } }, this.label(this.set.prompts[row.at])));
      this.list.replaceChildren(make("p", { class: "note" }, rows.length ? caption : "None."),
        make("ol", {}, ...rows.map((row, index) => make("li", {}, this.buttons[index], " ", make("span", { class: "note" }, row.note)))));
      this.show();
    }

    label(prompt) {
      const order = prompt.order === null || prompt.order === 0 ? "" : ` (order ${prompt.order})`;
      return `${prompt.id}${order}`;
    }

    show() {
      if (this.at === null) { this.detail.replaceChildren(); return; }
      const prompt = this.set.prompts[this.at];
      const where = make("div", { class: "plot", role: "img", tabindex: "0", "aria-label": `Options of ${prompt.id} through training` });
      const kinds = prompt.options.length > 1 ? ["share", "probability", "logprob"] : ["probability", "logprob"];
      const kind = choose("Show", kinds.map((name) => [name, TITLES[name]]), (value) => { this.state.y = value; this.draw(where, prompt); });
      if (!kinds.includes(this.state.y)) this.state.y = kinds[0];
      kind.select.value = this.state.y;
      const controls = make("div", { class: "controls" }, kind.element);
      if (this.own.length > 1) controls.prepend(boxes("Models", this.own.map((series) => series.name), this.state.on, () => this.draw(where, prompt)));
      this.detail.replaceChildren(make("h3", {}, this.label(prompt)), make("div", { class: "prompt-text" }, prompt.text),
        make("p", { class: "note" }, prompt.options.map((one) => `${visible(one.continuation)}${one.answer ? " (answer)" : ""}`).join(" | ")),
        controls, where);
      for (const element of drawn.keys()) if (!element.isConnected) { Plotly.purge(element); drawn.delete(element); }
      if (this.started) this.draw(where, prompt); else whenNear(this.detail, () => { this.started = true; this.draw(this.detail.querySelector(".plot"), this.set.prompts[this.at]); });
    }

    draw(where, prompt) {
      const first = this.widths[this.at];
      const steps = distinct(this.own.flatMap((series) => series.steps)).sort(later);
      const positive = steps.filter((step) => step !== null && step > 0);
      const low = Math.min(...positive);
      const place = (step) => (step === null ? (positive.length ? Math.log10(Math.max(...positive) / low) + ZERO + 0.4 : 1)
        : step === 0 ? 0 : Math.log10(step / low) + ZERO);
      const traces = this.own.flatMap((series, at) => this.state.on.has(series.name) ? prompt.options.map((option, index) => ({
        type: "scatter", mode: series.steps.length > 40 ? "lines" : "lines+markers", marker: { size: 5 },
        x: series.steps.map(place), y: this.scores(series, first, prompt.options.length, index),
        name: plain(this.own.length > 1 ? `${option.option}, ${series.name}` : option.option),
        line: { color: PALETTE[index % PALETTE.length], dash: DASHES[at % DASHES.length], width: 2 },
        customdata: series.steps.map(named), hovertemplate: "%{customdata}<br>%{y:.4~g}",
      })) : []);
      const ticks = steps.filter((step) => step === null || step === 0 || step === low || step === positive[positive.length - 1]
        || Number.isInteger(Math.log10(step)));
      plot(where, traces, { height: 380, hovermode: "closest", legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
        xaxis: { title: { text: "Training step" }, tickvals: ticks.map(place), ticktext: ticks.map((step) => (step === null ? "release" : step.toLocaleString("en"))), zeroline: false },
        yaxis: { title: { text: TITLES[this.state.y] }, range: this.state.y === "share" ? [-0.02, 1.02] : undefined, rangemode: "tozero", zeroline: false } });
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
  if (promptView) new Prompts(promptView, data.prompts);

  // ---- theme and print

  const theme = document.getElementById("theme");
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
