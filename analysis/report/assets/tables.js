// Tables: filled when they are opened, sorted by a click on a column, saved as CSV.

const FIRST_ROWS = 100;

const compare = (a, b) => {
  const [x, y] = [typeof a === "number", typeof b === "number"];
  if (x && y) return a - b;
  if (x !== y) return x ? -1 : 1;
  return String(a ?? "").localeCompare(String(b ?? ""));
};
// A column's name, which may end its line after each underscore.
const wrapped = (name) => name.split(/(?<=_)/).flatMap((word, at) => (at ? [make("wbr"), word] : [word]));
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
  const columns = source.values.map(cells);
  const length = columns.length ? columns[0].length : 0;
  const rows = Array.from({ length }, (_, at) => columns.map((column) => column[at]));
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
    } }, ...wrapped(name))));
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
    `The first ${length.toLocaleString("en")} of ${source.total.toLocaleString("en")} rows${source.allRows ? `; ${source.allRows.replaceAll("`", "")}` : ""}.`));
};
for (const details of document.querySelectorAll("details.table")) {
  details.addEventListener("toggle", () => details.open && fill(details));
  if (details.open) fill(details);
}
