// Single prompts: lists of them, and one through training.

const LISTED = 20;
const DASHES = [[1, 0], [4, 3], [1, 2], [6, 2, 1, 2], [8, 3]];
const TITLES = { share: "Option probability (normalized)", probability: "Probability in the vocabulary", logprob: "Log-probability (nats)" };
// Arrays of numbers travel as base64.
const numbers = (array) =>
  new Float32Array(Uint8Array.from(atob(array.bdata), (letter) => letter.charCodeAt(0)).buffer);
// Spaces at the ends, line breaks and what no font shows, as marks.
const visible = (text) => String(text).replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)).replace(/\n/g, "↵").replace(/\t/g, "⇥")
  .replace(/[\u0000-\u001f\u007f-\u00a0\u200b-\u200f\u2028-\u202e\ufeff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
const narrow = matchMedia("(max-width: 48rem)"); // lists are above what they choose

class Prompts {
  constructor(holder, sets) {
    this.sets = sets;
    this.list = make("div");
    this.title = make("h3");
    this.text = make("div");
    this.kinds = make("span");
    const plot = make("div", { class: "plot", role: "img" });
    this.figure = make("figure", {}, make("div", { class: "head" }, this.kinds, make("div", { class: "tools" })), plot);
    this.controls = make("div", { class: "controls" });
    holder.append(this.controls, make("div", { class: "prompts" }, this.list, make("div", {}, this.title, this.text, this.figure)));
    this.choose(0);
  }

  choose(at) {
    this.set = this.sets[at];
    this.own = this.set.series.map((series) => ({ ...series, logprob: numbers(series.logprob) }));
    this.state = { series: 0, find: "", y: this.set.measure, model: this.own.length > 3 ? this.own[0].name : "" };
    this.widths = this.set.prompts.reduce((ends, prompt) => [...ends, ends[ends.length - 1] + prompt.options.length], [0]);
    this.setControls(at);
    this.refresh();
  }

  setControls(at) {
    const { state } = this;
    const chosen = (label, options, value, change) => {
      const one = choose(label, options, change);
      one.select.value = value;
      return one.element;
    };
    const parts = [];
    if (this.sets.length > 1) parts.push(chosen("Prompt set", this.sets.map((set, index) => [index, set.name]), at, (value) => this.choose(Number(value))));
    if (this.own.length > 1) parts.push(chosen("Listed by", this.own.map((series, index) => [index, series.name]), state.series, (value) => { state.series = Number(value); this.refresh(); }));
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
    return series.changed.map(([at, option, change]) => ({ at, note: `${option}: change ${digits(change)}` }));
  }

  refresh(quiet) {
    const all = this.rows();
    const rows = all.slice(0, LISTED);
    const found = this.state.find.trim();
    const caption = found ? `${all.length} found among the ${this.set.prompts.length} on this page${all.length > LISTED ? `, the first ${LISTED}:` : ""}`
      : `Largest change in training, of ${this.set.total.toLocaleString("en")} prompts${this.set.grouped ? ", one per sentence" : ""}. ${TITLES[this.set.measure]}.`;
    const none = found ? `None among the ${this.set.prompts.length} on this page.` : "No prompt changes.";
    if (!quiet || !rows.some((row) => row.at === this.at)) this.at = rows.length ? rows[0].at : null;
    this.buttons = rows.map((row) => make("button", { type: "button", class: "link", click: () => {
      this.at = row.at;
      this.show();
      const { id, order } = this.set.prompts[row.at];
      address("prompts", { set: this.set.name, prompt: id, ...(order === null ? {} : { order }) });
      if (narrow.matches) this.title.scrollIntoView({ block: "start" });
    } }, this.label(this.set.prompts[row.at])));
    this.listed = rows.map((row) => row.at);
    this.list.replaceChildren(make("p", { class: "note" }, rows.length ? caption : none),
      make("ol", {}, ...rows.map((row, index) => make("li", {}, this.buttons[index], " ", make("span", { class: "note" }, row.note),
        make("div", { class: "excerpt" }, this.set.prompts[row.at].text)))));
    this.show();
  }

  open(about) { // the prompt of an address, if the page has it
    const set = this.sets.findIndex((one) => one.name === about.get("set"));
    if (set < 0) return;
    if (this.sets[set] !== this.set) this.choose(set);
    const at = this.set.prompts.findIndex(({ id, order }) => id === about.get("prompt")
      && (about.has("order") ? String(order) === about.get("order") : order === null));
    if (at < 0) return;
    this.at = at;
    this.show();
  }

  label(prompt) {
    return prompt.order === null || prompt.order === 0 ? prompt.id : `${prompt.id} (order ${prompt.order})`;
  }

  show() {
    this.listed.forEach((at, index) => this.buttons[index].setAttribute("aria-current", String(at === this.at)));
    for (const part of [this.title, this.text, this.figure]) part.hidden = this.at === null;
    if (this.at === null) return;
    const prompt = this.set.prompts[this.at];
    const kinds = prompt.options.length > 1 ? ["share", "probability", "logprob"] : ["probability", "logprob"];
    if (!kinds.includes(this.state.y)) this.state.y = kinds[0];
    const kind = choose("Value", kinds.map((name) => [name, TITLES[name]]), (value) => { this.state.y = value; this.draw(); });
    kind.select.value = this.state.y;
    const models = choose("Model", [["", "all"], ...this.own.map(({ name }) => [name, name])], (value) => { this.state.model = value; this.draw(); });
    models.select.value = this.state.model;
    this.kinds.replaceChildren(...(this.own.length > 1 ? [models.element] : []), kind.element);
    this.title.textContent = this.label(prompt);
    this.text.replaceChildren(make("div", { class: "prompt-text" }, prompt.text),
      make("p", { class: "note" }, prompt.options.map((one) => `${visible(one.continuation || one.option)}${one.answer ? " (answer)" : ""}`).join(" | ")));
    this.draw();
  }

  draw() {
    const { axis, colors, prompts } = this.set;
    const prompt = prompts[this.at];
    const chosen = this.own.filter(({ name: model }) => !this.state.model || model === this.state.model);
    const several = chosen.length > 1;
    const rows = chosen.flatMap((series) => prompt.options.flatMap((option, index) =>
      this.scores(series, prompt.options.length, index).map((value, at) => {
        const step = series.steps[at];
        return { series: series.name, option: option.option, step, at: step ?? axis.release, checkpoint: named(step), value };
      }).filter(({ value }) => Number.isFinite(value))));
    const options = distinct(prompt.options.map((option) => option.option));
    const names = chosen.map((series) => series.name);
    const legend = (texts) => ({ title: null, symbolType: "stroke", // as many columns as fit on a phone
      columns: Math.max(1, Math.floor(200 / (25 + 5 * Math.max(...texts.map((text) => text.length))))) });
    const y = { share: [0, 1], probability: { zero: true }, logprob: { zero: false } }[this.state.y];
    const encoding = {
      x: axis.x,
      y: { field: "value", type: "quantitative", title: TITLES[this.state.y], scale: Array.isArray(y) ? { domain: y } : y },
      color: { field: "option", type: "nominal", scale: { domain: options, range: options.map((name) => colors[name]) }, legend: legend(options) },
      ...(several ? { strokeDash: { field: "series", type: "nominal", scale: { domain: names, range: names.map((_, at) => DASHES[at % DASHES.length]) }, legend: { ...legend(names), orient: "bottom" } } } : {}),
    };
    const tooltip = [["checkpoint", "Checkpoint"], ...(several ? [["series", "Model"]] : []), ["option", "Option"], ["value", TITLES[this.state.y]]]
      .map(([field, title]) => ({ field, title, type: field === "value" ? "quantitative" : "nominal", ...(field === "value" ? { format: ".4~g" } : {}) }));
    const trained = [{ filter: "isValid(datum.step)" }];
    const spec = { usermeta: { ...axis.meta, title: "this prompt" }, data: { name: "rows" }, height: 170, encoding, layer: [
      { transform: trained, mark: "line" },
      { transform: trained, mark: { type: "point", filled: true, size: rows.length > 40 * options.length * names.length ? 4 : 16 }, encoding: { tooltip } },
      { transform: [{ filter: "!isValid(datum.step)" }], mark: { type: "point", shape: "diamond", filled: true, size: 50 }, encoding: { tooltip } },
    ] };
    const section = { note: () => {}, moveTo: (label) => this.chart.moveTo(label) };
    this.chart ??= Object.assign(new Chart(this.figure, { spec, datasets: {} }), { section });
    this.chart.plot.setAttribute("aria-label", `Options of ${prompt.id} through training`);
    this.chart.replace(spec, rows, axis.meta.steps);
  }

  scores(series, options, index) {
    const first = this.widths[this.at];
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
const promptsShown = promptView ? new Prompts(promptView, data.prompts) : null;
