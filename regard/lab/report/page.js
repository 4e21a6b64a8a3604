// Draws what Python computed; no number is made here.

const told = read("told");
const home = document.getElementById("page");
const tip = document.getElementById("tip");
const round = (value, digits = 3) => value === null || value === undefined ? "–" : Math.abs(value) < 10 ? value.toFixed(digits) : value.toLocaleString("en", { maximumFractionDigits: 1 });
const whole = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 0 });
function size(value, unit = "B") {
  if (value === null || value === undefined) return "–";
  for (const [power, prefix] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (value >= power) return `${+(value / power).toPrecision(3)} ${prefix}${unit}`;
  return `${Math.round(value)} ${unit}`;
}
const label = (row) => row.entry + (row.causal && !row.line ? " (causal)" : "");

function point(element, facts) {
  const show = (event) => {
    tip.replaceChildren(...facts().filter(([, value]) => value !== null && value !== "").flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
    tip.hidden = false;
    const box = element.getBoundingClientRect();
    const x = event.clientX ?? box.right, y = event.clientY ?? box.bottom;
    tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 14 + tip.offsetHeight > innerHeight ? Math.max(6, y - tip.offsetHeight - 12) : y + 14}px`;
  };
  element.addEventListener("pointermove", show);
  element.addEventListener("focus", show);
  for (const name of ["pointerleave", "blur"]) element.addEventListener(name, () => { tip.hidden = true; });
}

// The articles' own chart: what is gained over the bag against tokens a second; the area is memory.
function chart(question) {
  const timed = question.columns.find((column) => column.kind === "timed");
  if (!timed) return null;
  const points = question.rows.filter((row) => row.gain !== null && row.timed[timed.name]).map((row) => ({ row, at: row.timed[timed.name] }));
  if (points.length < 2) return null;
  const width = 1080, height = 470, left = 56, bottom = 46, top = 14, right = 24;
  const speeds = points.map((p) => p.at["tokens per second"]);
  const low = Math.log10(Math.min(...speeds) / 1.25), high = Math.log10(Math.max(...speeds) * 1.6);
  const x = (speed) => left + (Math.log10(speed) - low) / (high - low) * (width - left - right);
  const y = (gain) => top + (1 - gain / 1.05) * (height - top - bottom);
  const most = Math.max(1, ...points.map((p) => p.at["peak bytes"]));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": "Gain over the bag against tokens a second" });
  for (const gain of [0, 0.25, 0.5, 0.75, 1]) svg.append(drawn("line", { class: "rule", x1: left, x2: width - right, y1: y(gain), y2: y(gain) }), drawn("text", { class: "tick", x: left - 8, y: y(gain) + 4, "text-anchor": "end" }, gain.toFixed(2)));
  for (const base of [1, 2, 5]) for (let power = 2; power < 9; power++) {
    const speed = base * 10 ** power;
    if (Math.log10(speed) > low && Math.log10(speed) < high) svg.append(drawn("line", { class: "rule", x1: x(speed), x2: x(speed), y1: top, y2: height - bottom }), drawn("text", { class: "tick", x: x(speed), y: height - bottom + 18, "text-anchor": "middle" }, size(speed, "")));
  }
  svg.append(drawn("text", { class: "title", x: width - right, y: height - 8, "text-anchor": "end" }, `tokens a second, ${timed.kind === "timed" ? timed.name : ""}, one block of width ${timed.dim} →`), drawn("text", { class: "title", x: left, y: top + 2 }, `↑ mean of (score - bag) / (1 - bag): ${question.gained.join(", ")}`));
  const taken = [], pen = document.createElement("canvas").getContext("2d");
  pen.font = `12px ${getComputedStyle(home).fontFamily}`;
  for (const { row, at } of [...points].sort((a, b) => b.at["peak bytes"] - a.at["peak bytes"])) {
    const r = Math.max(3.5, 26 * Math.sqrt(at["peak bytes"] / most)), cx = x(at["tokens per second"]), cy = y(row.gain);
    const mark = drawn("circle", { class: `mark${row.causal ? " causal" : ""}${row.line ? " line" : ""}`, cx, cy, r, tabindex: 0 });
    point(mark, () => [["entry", label(row)], ["gain over the bag", round(row.gain)], ["tokens a second", whole(at["tokens per second"])], ["peak memory", size(at["peak bytes"])], ["time of softmax's", round(at["of softmax"], 2)]]);
    svg.append(mark);
    const name = row.entry.split(",")[0], long = pen.measureText(name).width + 4;
    const places = [0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5].flatMap((line) => [cx + r + 3, cx - r - 3 - long].map((x) => [x, cy + 4 + 15 * line]));
    const place = places.find(([x, y]) => x >= left && x + long <= width && y - 11 >= 0 && y + 4 <= height - bottom && !taken.some((t) => x < t[0] + t[2] && x + long > t[0] && Math.abs(y - t[1]) < 15));
    if (!place) continue;
    taken.push([...place, long]);
    svg.append(drawn("text", { class: "label", x: place[0] + 2, y: place[1] }, name));
  }
  return svg;
}

function coloured(td, cell) {
  if (cell.mark === "not reached") { td.classList.add("grey"); return; }
  if (cell.mark === "reached") td.classList.add("reached");
  if (!cell.mark || cell.share === null) return;
  const share = Math.min(1, cell.share);
  td.style.backgroundColor = `color-mix(in oklab, var(--accent) ${Math.round(8 + 62 * share)}%, var(--ground))`;
  if (share > 0.75) td.classList.add("strong");
}

function facts(question, row, cell, column) {
  return [
    ["entry", label(row)], ["column", `${column.name}, ${column.length} tokens${cell.causal ? ", causal form" : ""}`],
    ["values", cell.values.map((value, i) => `${round(value)} (seed ${cell.seeds[i]})`).join(", ")],
    ["99 % interval", cell.interval && cell.interval.low !== null && question.kind === "comparison" ? `${round(cell.interval.low)} to ${round(cell.interval.high)}` : ""],
    ["chance, no mixing, the bag", [cell.chance, cell.unmixed, cell.bag].map((value) => round(value)).join(", ")],
    ["mark", cell.mark], ["rate", cell.rate === null ? "" : `${cell.rate} of ${cell.rates.join(", ")}`], ["steps", cell.steps.join(", ")],
    ["parameters", whole(cell.parameters)], ["needed pairs that the structure allows", cell.allowed === null ? "" : `${round(cell.allowed)}: a perfect use gives ${round(cell.predicted)}`],
    ["failed", cell.failed ? `${cell.failed} of ${cell.of}` : ""], ["not run", cell.reason ?? ""],
  ];
}

function curves(question, row, cell, column) {
  const box = make("div", { class: "detail" }, make("h3", {}, `${label(row)}: ${column.name}`));
  const list = make("dl", {});
  list.append(...facts(question, row, cell, column).filter(([, value]) => value).map(([name, value]) => make("div", {}, make("b", {}, `${name}: `), value)));
  const points = cell.curves.flat();
  if (points.length > 1) {
    const width = 520, height = 200, left = 44, bottom = 24;
    const steps = Math.max(...points.map(([step]) => step)), values = points.map(([, value]) => value);
    const low = Math.min(...values, column.metric === "accuracy" ? 0 : Infinity), high = Math.max(...values, column.metric === "accuracy" ? 1 : -Infinity);
    const x = (step) => left + step / steps * (width - left - 10), y = (value) => 8 + (high - value) / (high - low || 1) * (height - bottom - 8);
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", width, height });
    for (const value of [low, (low + high) / 2, high]) svg.append(drawn("line", { class: "rule", x1: left, x2: width, y1: y(value), y2: y(value) }), drawn("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, round(value, 2)));
    if (cell.bag !== null) svg.append(drawn("line", { class: "level", x1: left, x2: width, y1: y(cell.bag), y2: y(cell.bag) }));
    for (const curve of cell.curves) svg.append(drawn("polyline", { class: "curve", points: curve.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
    svg.append(drawn("text", { class: "tick", x: width - 10, y: height - 6, "text-anchor": "end" }, `${whole(steps)} steps; dashed: the bag`));
    box.append(svg);
  }
  box.append(list);
  return box;
}

function grid(question, detail) {
  const trained = question.columns.filter((column) => column.kind === "trained" && (!column.later || question.rows.some((row) => row.cells[column.name])));
  const timed = question.columns.filter((column) => column.kind === "timed");
  const heads = [["entry", "", (row) => label(row)]];
  if (question.rows.some((row) => row.gain !== null)) heads.push(["gain", "over the bag", (row) => row.gain]);
  for (const column of trained) heads.push([column.name, `${column.metric.replaceAll("_", " ")} ${column.better === "lower" ? "↓" : "↑"}`, (row) => row.cells[column.name]?.mean ?? null]);
  for (const column of timed) heads.push(["tokens/s", column.name, (row) => row.timed[column.name]?.["tokens per second"] ?? null], ["memory", "peak", (row) => row.timed[column.name]?.["peak bytes"] ?? null], ["state", "bytes a row", (row) => row.timed[column.name]?.["state bytes"] ?? null]);
  heads.push(["parameters", "of the model", (row) => row.parameters]);
  const body = make("tbody");
  const lines = trained.length ? [{ entry: "chance", line: true, chance: true }] : [];
  const rowOf = (row) => {
    const tr = make("tr", { class: row.line ? "line" : "" }, make("th", { scope: "row", title: row.source ? `source ${row.source.slice(0, 12)}` : null }, row.chance ? "chance" : label(row)));
    if (row.chance) {
      if (heads[1]?.[0] === "gain") tr.append(make("td", {}));
      for (const column of trained) tr.append(make("td", { class: "number" }, round(column.chance)));
      return tr;
    }
    if (heads[1]?.[0] === "gain") tr.append(make("td", { class: "number" }, round(row.gain, 2)));
    for (const column of trained) {
      const cell = row.cells[column.name];
      const td = make("td", { class: "cell", tabindex: cell ? 0 : null });
      if (!cell) td.append("–");
      else if (cell.mean === null) { td.classList.add("absent"); td.append(cell.failed ? `${cell.failed} of ${cell.of} failed` : "not run"); }
      else { td.append(round(cell.mean)); if (cell.values.length > 1) td.append(make("small", {}, cell.values.map((value) => round(value, 2)).join(" "))); if (cell.failed) td.append(make("small", {}, `${cell.failed} of ${cell.of} failed`)); if (!row.line) coloured(td, cell); }
      if (cell) {
        point(td, () => facts(question, row, cell, column));
        const open = () => { detail.replaceChildren(curves(question, row, cell, column)); detail.scrollIntoView({ block: "nearest", behavior: "smooth" }); };
        td.addEventListener("click", open);
        td.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
      }
      tr.append(td);
    }
    for (const column of timed) {
      const at = row.timed[column.name];
      const speed = make("td", { class: "number" }, at ? whole(at["tokens per second"]) : "–");
      if (at?.form) speed.append(make("small", {}, at.form));
      tr.append(speed, make("td", { class: "number" }, at ? size(at["peak bytes"]) : "–"), make("td", { class: "number" }, at ? (at["state bytes"] === null ? "none" : size(at["state bytes"])) : "–"));
    }
    tr.append(make("td", { class: "number" }, whole(row.parameters)));
    return tr;
  };
  const fill = (rows) => body.replaceChildren(...[...lines, ...rows].map(rowOf));
  let sorted = null;
  const head = make("tr", {}, ...heads.map(([name, small, of], place) => {
    const button = make("button", {}, name);
    button.addEventListener("click", () => {
      const way = sorted === place ? 1 : -1;
      sorted = sorted === place ? null : place;
      const key = (row) => of(row) ?? -Infinity;
      const rest = question.rows.filter((row) => !row.line).sort((a, b) => (typeof key(a) === "string" ? key(a).localeCompare(key(b)) : key(a) - key(b)) * (place ? way : -way));
      fill([...question.rows.filter((row) => row.line), ...rest]);
    });
    return make("th", { scope: "col" }, button, make("small", {}, small));
  }));
  fill(question.rows);
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), body));
}

function claims(question) {
  const list = make("ul", { class: "claims" });
  for (const claim of question.claims) {
    const item = make("li", {}, make("span", { class: `verdict ${claim.verdict.replaceAll(" ", "-")}` }, claim.verdict), ": ", claim.text, " ", make("span", { class: "soft" }, claim.source));
    item.append(make("span", { class: "soft" }, ` (written down at ${claim["stated commit"]})`));
    if (claim.withdrawn) item.append(make("div", { class: "soft" }, claim.withdrawn));
    for (const one of claim.bounds) {
      const found = one.interval;
      const span = !found ? "not run" : found.low === null ? `${round(found.mean)} from one seed` : `${round(found.mean)}, ${round(found.low)} to ${round(found.high)} at 99 %, ${found.seeds} seeds${found.items ? ` and ${whole(found.items)} test items` : ""}`;
      item.append(make("div", { class: "soft" }, `${one.of}${one.beside ? ` less ${one.beside}` : ""} in ${[one.column, one.measure].filter(Boolean).join(", ")}: ${span}${one.reason ? `; ${one.reason}` : ""}`));
    }
    if (claim.needs) item.append(make("div", { class: "soft" }, `would tell: ${claim.needs}`));
    list.append(item);
  }
  return list;
}

function page(question) {
  const detail = make("div", { "aria-live": "polite" });
  const parts = [make("h1", {}, question.headline)];
  if (question.about && question.about !== question.headline) parts.push(make("p", {}, question.about[0].toUpperCase() + question.about.slice(1) + (/[.?!]$/.test(question.about) ? "" : ".")));
  const told = [question.device, `commit ${question.commit}`, `asked ${question.asked.slice(0, 16).replace("T", " ")}`, `seeds ${question.seeds.join(", ")}`];
  if (question.rates.length) told.push(`rates ${question.rates.join(", ")}`);
  parts.push(make("div", { class: "facts" }, ...told.map((fact) => make("span", {}, fact))));
  const notes = [...question.missing, ...Object.entries(question.old).map(([entry, count]) => `${count} old results of ${entry} left out: their source, options, budget or shell were others`), ...question.rows.filter((row) => row.breaks).map((row) => `${row.entry} breaks a law: ${row.breaks}`)];
  if (notes.length) parts.push(make("ul", { class: "notes" }, ...notes.map((note) => make("li", {}, note))));
  const drawing = chart(question);
  if (drawing) parts.push(make("h2", {}, "Quality against speed against memory"), make("p", { class: "soft" }, "Up: more of what lies above a uniform mean of all tokens. Right: faster. Area: peak memory. Hollow: the causal form, where a mechanism has no other."), drawing);
  if (question.claims.length) parts.push(make("h2", {}, "Claims"), claims(question));
  parts.push(make("h2", {}, question.kind === "screen" ? "What each reaches" : "Results"));
  if (question.kind === "screen") {
    const swatch = (share, text) => { const i = make("i"); i.style.backgroundColor = share === null ? "var(--panel)" : `color-mix(in oklab, var(--accent) ${8 + 62 * share}%, var(--ground))`; return make("span", {}, i, text); };
    parts.push(make("p", { class: "soft" }, "A screen: it asks of each entry alone, and says of none that it is better than another. The colour begins at the bag's score. Mean, and the value of each seed; point for numbers, click for the curve."), make("div", { class: "legend" }, swatch(null, "does not pass chance, no mixing and the bag"), swatch(0, "just above"), swatch(0.5, "half-way"), swatch(1, `all; bold: ${question.mark} or more`)));
  }
  parts.push(grid(question, detail), detail);
  if (question.limits.length) parts.push(make("h2", {}, "What it cannot say"), make("ul", {}, ...question.limits.map((limit) => make("li", {}, limit))));
  parts.push(make("h2", {}, "How the laws of an experiment were met"), make("ul", { class: "laws" }, ...Object.entries(question.laws).map(([law, how]) => make("li", {}, `${law}. ${how}`))));
  return parts;
}

function open(place) {
  home.replaceChildren(...(told.questions.length ? page(told.questions[place]) : [make("h1", {}, "Nothing has been asked yet")]));
}
if (told.questions.length > 1) document.getElementById("questions").append(...told.questions.map((question, place) => {
  const button = make("button", {}, question.name);
  button.addEventListener("click", () => open(place));
  return button;
}));
open(0);
document.documentElement.dataset.charts = "drawn";
