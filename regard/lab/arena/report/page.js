// The page: what the reader chose, and everything drawn anew from it.

const one = (id) => document.getElementById(id);
const files = [{ name: "this page", ...readResults(one("results").textContent) }];
const chosen = { task: "", pass: null, length: null, unit: null };
const hidden = new Set(); // labels of mechanisms out of view
const inView = (label) => !hidden.has(label);
let summary;
let exported = { heads: [], rows: [] };

// Colours go by family; the baseline is grey.
function colourOf(label) {
  const { family, baseline } = summary.mechanisms.get(label);
  if (baseline) return "base";
  const families = [...new Set([...summary.mechanisms.values()].filter((m) => !m.baseline).map((m) => m.family))];
  return `c${families.indexOf(family) % COLOURS}`;
}

const placeOf = (label) => [...summary.mechanisms.keys()].indexOf(label);
const labelsInView = () => [...summary.mechanisms.keys()].filter(inView);
const tasksChosen = () => (chosen.task ? [chosen.task] : summary.tasks).filter((task) => !chosen.pass || summary.tasksFor(chosen.pass).includes(task));

function fill(select, options, value) {
  select.replaceChildren(...options.map(([text, of, group]) => {
    const option = make("option", { value: String(of) }, text);
    return group ? make("optgroup", { label: group }, option) : option;
  }));
  select.value = String(value);
}

function offerChoices() {
  if (!summary.passes.includes(chosen.pass)) chosen.pass = summary.passes[0] ?? null;
  if (!summary.tasks.includes(chosen.task)) chosen.task = "";
  const lengths = chosen.pass ? summary.lengths.get(chosen.pass) : [];
  if (!lengths.includes(chosen.length)) chosen.length = chosen.pass ? summary.usualLength(chosen.pass, chosen.task ? [chosen.task] : undefined) : null;
  fill(one("task"), [["every task", ""], ...summary.tasks.map((task) => [short(task, 40), task])], chosen.task);
  fill(one("pass"), summary.passes.map((pass) => [rules.pass_names[pass], pass]), chosen.pass);
  fill(one("length"), lengths.map((length) => [count(length) + (isFar(length) ? ", further out" : ""), length]), chosen.length);
  fill(one("unit"), summary.units.map((unit) => [unit, unit]), summary.unit);
  one("units").hidden = summary.units.length < 2;
  one("choice").hidden = !chosen.pass;
}

// Longer than twice what any chosen task was trained on.
function isFar(length, tasks = chosen.task ? [chosen.task] : summary.tasks) {
  const trained = tasks.map((task) => summary.trainedLength(task)).filter((n) => n !== null);
  return trained.length > 0 && length > 2 * Math.max(...trained);
}

function offerMechanisms() {
  const boxes = [...summary.mechanisms.keys()].map((label) => {
    const box = make("input", { type: "checkbox" });
    box.checked = inView(label);
    box.onchange = () => { if (box.checked) hidden.delete(label); else hidden.add(label); redraw(); };
    return make("label", { class: colourOf(label), "data-m": placeOf(label) }, box, make("i"), short(label, 48));
  });
  one("mechanisms").replaceChildren(...boxes);
  one("in-view").textContent = `${labelsInView().length} of ${summary.mechanisms.size}`;
}

function show(labels) {
  hidden.clear();
  for (const label of summary.mechanisms.keys()) if (!labels.includes(label)) hidden.add(label);
  offerMechanisms();
  redraw();
}

function tellChoice() {
  const { pass, length } = chosen;
  const tasks = tasksChosen();
  const decisions = pass ? tasks.map((task) => summary.decide(task, pass, length, inView)) : [];
  one("headline").textContent = visible(pass && !summary.tasks.length
    ? fastestWords(summary, labelsInView(), pass, length) : pass
    ? headlineWords(decisions.filter((d) => d), pass, length)
    : "Nothing to choose from yet: a choice needs one mechanism both trained and timed.");
  one("choices").replaceChildren(...tasks.map((task, i) => (decisions[i]
    ? make("li", {}, make("b", {}, short(decisions[i].choice, 60)), ` for ${task}: ${decisionWords(decisions[i], summary)}.`)
    : make("li", {}, `${task}: nothing in view was both trained and timed here.`))));
  if (pass && summary.tasks.length && !tasks.length) one("choices").append(make("li", {}, "Decoding concerns language models, and none is chosen."));
  const [lacks, unsaid, doubtful] = [[], [], []];
  const beyond = new Map(); // trained length -> tasks
  for (const task of tasks) {
    const has = new Set(summary.quality.get(task).map(({ label }) => label));
    const without = labelsInView().filter((label) => !has.has(label));
    if (without.length) lacks.push(`${task}: no quality for ${few(without)}.`);
    const trained = summary.trainedLength(task);
    if (trained === null) unsaid.push(task);
    else if (pass && isFar(length, [task])) beyond.set(trained, [...(beyond.get(trained) ?? []), task]);
    const runs = summary.quality.get(task).filter(({ label }) => inView(label)).map((q) => q.runs.length);
    if (runs.length && Math.min(...runs) < 3) doubtful.push(task);
  }
  for (const [trained, of] of beyond) lacks.push(`No quality is known at ${count(length)} tokens: trained at up to ${count(trained)}, ${few(of)}.`);
  if (unsaid.length) lacks.push(`At which length ${few(unsaid)} ${unsaid.length > 1 ? "were" : "was"} trained is not in these rows.`);
  if (doubtful.length) lacks.push(`Fewer than three seeds for some on ${few(doubtful)}: small differences may be chance.`);
  const untimed = pass ? labelsInView().filter((label) => !summary.timing(label, pass, length)) : [];
  if (untimed.length) lacks.push(`${rules.pass_names[pass]} at ${count(length)} tokens: not timed for ${few(untimed)}.`);
  one("missing").replaceChildren(...lacks.map((line) => make("li", {}, line)));
  one("missing").hidden = !lacks.length;
  one("notes").replaceChildren(...summary.notes.map((line) => make("li", {}, line)));
  one("notes").hidden = !summary.notes.length;
}

function timedFacts(row) {
  return [
    ["speed against softmax", speedWords(row.baseline_ms / row.median_ms)],
    ["median (quartiles)", `${milliseconds(row.median_ms)} (${three(row.low_ms)} – ${three(row.high_ms)})`],
    ["softmax beside it", milliseconds(row.baseline_ms)],
    ["peak memory", size(row.peak_bytes)],
    ["causal", row.causal ? "yes" : "no"],
    ...(row.parameters ? [["its parameters", `${size(row.parameters, "")}, softmax's ${size(row.baseline_parameters ?? 0, "")}`]] : []),
    ["computed by", row.impl ?? "eager"],
  ];
}

function figure(title, draw) {
  const place = make("div", { class: "drawing" });
  place.draw = (width) => place.replaceChildren(draw(width));
  return make("figure", {}, make("figcaption", {}, title), place);
}

function tradeFigures() {
  const { pass, length } = chosen;
  const found = [];
  for (const task of pass ? tasksChosen() : []) {
    const causal = summary.isLanguage(task);
    const points = [];
    for (const q of summary.quality.get(task).filter(({ label }) => inView(label))) {
      const row = summary.timing(q.label, pass, length, causal);
      if (!row) continue;
      points.push({
        label: q.label, place: placeOf(q.label), colour: colourOf(q.label), speed: row.baseline_ms / row.median_ms,
        value: q.mean, low: q.low, high: q.high, bytes: row.peak_bytes,
        facts: [["mechanism", q.label], ["family", summary.mechanisms.get(q.label).family],
          [metricName(q.metric), `${qualityWords(q)}, ${q.runs.length} seed${q.runs.length > 1 ? "s" : ""}`],
          ...timedFacts(row), ["parameters", size(q.parameters, "")],
          ...(q.runs[0].rate ? [["learning rate", trimmed(q.runs[0].rate, 3)]] : [])],
      });
    }
    if (!points.length) continue;
    const { metric, higher } = summary.quality.get(task)[0];
    const trained = summary.trainedLength(task);
    const where = trained === null ? "" : `, quality at up to ${count(trained)}`;
    const title = `${task}: ${rules.pass_names[pass]} at ${count(length)} tokens${where}`;
    const made = figure(title, (width) => tradeChart(width, `Quality against speed, ${task}`, points, { metric: metricName(metric), higher }));
    if (isFar(length, [task])) made.className = "far";
    found.push(made);
  }
  return found;
}

function growthFigures() {
  const { pass } = chosen;
  if (!pass) return [];
  const trained = Math.max(0, ...summary.tasks.map((task) => summary.trainedLength(task) ?? 0)) || null;
  const quantities = [
    ["Time", "milliseconds", (row) => [row.median_ms, row.low_ms, row.high_ms]],
    ["Peak memory", "megabytes", (row) => [row.peak_bytes / 1e6, row.peak_bytes / 1e6, row.peak_bytes / 1e6]],
  ];
  return quantities.flatMap(([name, unit, of]) => {
    const lines = labelsInView().map((label) => ({
      label, place: placeOf(label), colour: colourOf(label),
      points: summary.lengths.get(pass).flatMap((length) => {
        const row = summary.timing(label, pass, length);
        const [y, low, high] = row ? of(row) : [0, 0, 0];
        return y > 0 ? [{ x: length, y, low: low > 0 ? Math.min(low, y) : y, high: Math.max(high, y), facts: [["mechanism", label], ["length", count(length)], ...timedFacts(row)] }] : [];
      }),
    })).filter(({ points }) => points.length);
    if (!lines.length) return [];
    const title = `${name}, ${rules.pass_names[pass]}`;
    const xTicks = summary.lengths.get(pass);
    return [figure(title, (width) => lineChart(width, title, lines, { xTitle: "length, tokens", yTitle: unit, xTicks, trained }))];
  });
}

function trainingFigures() {
  return (chosen.task ? [chosen.task] : summary.tasks).flatMap((task) => {
    const lines = summary.quality.get(task).filter(({ label }) => inView(label)).flatMap((q) => q.runs.map((run) => ({
      label: q.label, place: placeOf(q.label), colour: colourOf(q.label),
      points: (run.curve ?? []).map(([step, value]) => ({
        x: step, y: value, low: value, high: value,
        facts: [["mechanism", q.label], ["seed", String(run.seed)], ["step", count(step)], [metricName(q.metric), trimmed(value, 4)]],
      })),
    }))).filter(({ points }) => points.length);
    if (!lines.length) return [];
    const { metric, higher } = summary.quality.get(task)[0];
    const yTitle = `validation ${metricName(metric)}, ${higher ? "higher" : "lower"} is better`;
    return [figure(task, (width) => lineChart(width, `Training, ${task}`, lines, { xTitle: "training steps", yTitle, log: false }))];
  });
}

function put(id, figures) {
  one(id).replaceChildren(...figures);
  one(`${id}-part`).hidden = !figures.length;
}

// ---- tables: {heads: [{name, small, number}], rows: [{cells: [{text, value, why, best, colour, far}]}]}

function table(element, { heads, rows }, { sortable = false } = {}) {
  const narrow = heads.length > 11; // columns: the spread goes below the mean
  element.classList.toggle("narrow", narrow);
  const inside = (text) => {
    if (element.classList.contains("prose")) return [text];
    const [before, after] = narrow ? text.split(" ± ") : [text];
    return after ? [before, make("small", {}, `± ${after}`)] : [short(text, 60)];
  };
  const head = heads.map(({ name, small, number }) => {
    const title = [short(name, 40), ...(small ? [make("small", {}, small)] : [])];
    const cell = make("th", { class: number ? "number" : null, scope: "col" }, ...(sortable ? [make("button", {}, ...title)] : title));
    if (sortable) cell.firstChild.onclick = () => sortBy(cell);
    return cell;
  });
  const body = rows.map((cells) => make("tr", {}, cells.map(({ text, value, mark, best, far, colour, place }, i) => make(
    i ? "td" : "th",
    { class: [heads[i].number ? "number" : "", best ? "best" : "", far ? "soft" : "", colour ?? ""].join(" ").trim() || null,
      "data-value": value ?? null, "data-m": place ?? null, "data-head": i ? short(heads[i].name, 40) : null, scope: i ? null : "row" },
    ...(colour ? [make("i")] : []), ...inside(text), ...(mark ? [make("sup", {}, make("a", { href: `#why-${mark}` }, String(mark)))] : []),
  ))));
  element.replaceChildren(make("thead", { class: sortable ? null : "plain" }, make("tr", {}, head)), make("tbody", {}, body));
}

function sortBy(header) {
  const up = header.getAttribute("aria-sort") !== "ascending";
  const body = header.closest("table").tBodies[0];
  const value = (row) => row.cells[header.cellIndex].dataset.value ?? row.cells[header.cellIndex].textContent;
  const empty = (text) => text === "" || text.startsWith("–");
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (empty(x) || empty(y)) return empty(x) - empty(y);
    const order = Number.isNaN(Number(x)) || Number.isNaN(Number(y)) ? x.localeCompare(y) : Number(x) - Number(y);
    return up ? order : -order;
  };
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...[...body.rows].sort(compare));
}

function leaderboard() {
  const { pass, length } = chosen;
  const tasks = chosen.task ? [chosen.task] : summary.tasks;
  const reasons = new Map(); // text -> number
  const empty = (why) => {
    if (!reasons.has(why)) reasons.set(why, reasons.size + 1);
    return { text: "–", why, mark: reasons.get(why) };
  };
  const number = (text, value, more = {}) => ({ text, value, ...more });
  const heads = [{ name: "mechanism" }, { name: "family" }];
  for (const task of tasks) {
    const { metric, higher } = summary.quality.get(task)[0];
    heads.push({ name: task, small: `${metricName(metric)}, ${higher ? "higher" : "lower"} is better`, number: true });
  }
  if (pass) {
    heads.push(...[["speed", "against softmax"], ["time", "median"], ["memory", "peak"]].map(([name, small]) => (
      { name, small: `${small}, ${rules.pass_names[pass]}, ${count(length)} tokens`, number: true })));
  }
  heads.push({ name: "parameters", number: true }, { name: "trained in", small: "all runs", number: true });
  const best = new Map(tasks.map((task) => [task, summary.quality.get(task).find(({ label }) => inView(label))]));
  const rows = labelsInView().map((label) => {
    const cells = [{ text: label, colour: colourOf(label), place: placeOf(label) }, { text: summary.mechanisms.get(label).family }];
    const of = tasks.map((task) => summary.quality.get(task).find((q) => q.label === label));
    of.forEach((q, i) => cells.push(q ? number(qualityWords(q), q.mean, { best: best.get(tasks[i]) === q }) : empty(summary.whyEmpty(label, tasks[i]))));
    if (pass) {
      const row = summary.timing(label, pass, length, tasks.length === 1 ? summary.isLanguage(tasks[0]) : undefined);
      if (row) {
        const speed = row.baseline_ms / row.median_ms;
        cells.push(number(speedWords(speed), speed), number(milliseconds(row.median_ms), row.median_ms), number(size(row.peak_bytes), row.peak_bytes));
      } else {
        cells.push(...Array.from({ length: 3 }, () => empty(summary.whyEmpty(label, pass, length))));
      }
    }
    const trained = of.filter((q) => q);
    if (trained.length) {
      const sizes = trained.map((q) => q.parameters);
      const [low, high] = [Math.min(...sizes), Math.max(...sizes)].map((n) => size(n, ""));
      const seconds = trained.flatMap((q) => q.runs).reduce((sum, run) => sum + run.seconds, 0);
      cells.push(number(low === high ? low : `${low} – ${high}`, Math.max(...sizes)), number(`${count(seconds)} s`, seconds));
    } else {
      cells.push({ text: "–" }, { text: "–" });
    }
    return cells;
  });
  return { heads, rows, reasons };
}

function showLeaderboard() {
  exported = leaderboard();
  table(one("standings"), exported, { sortable: true });
  one("reasons").replaceChildren(...[...exported.reasons].map(([why, mark]) => make("li", { id: `why-${mark}` }, why)));
  one("reasons-part").hidden = !exported.reasons.size;
  one("standings-part").hidden = !summary.mechanisms.size;
  showExport();
}

function showChoicesByLength() {
  const { pass } = chosen;
  const tasks = tasksChosen();
  one("by-length-part").hidden = !pass || !tasks.length;
  if (!pass) return;
  const lengths = summary.lengths.get(pass);
  const rows = tasks.map((task) => [{ text: task }, ...lengths.map((length) => {
    const found = summary.decide(task, pass, length, inView);
    return { text: found ? `${found.choice} ${speedWords(1 / found.ratio)}` : "–", far: isFar(length, [task]) };
  })]);
  table(one("by-length"), { heads: [{ name: "task" }, ...lengths.map((length) => ({ name: count(length) }))], rows });
}

function showGrowth() {
  const { pass } = chosen;
  one("powers-part").hidden = !pass;
  if (!pass) return;
  const power = (found) => (found
    ? { text: `n^${found.power.toFixed(2)} ± ${found.error.toFixed(2)}`, value: found.power } : { text: "–" });
  const rows = labelsInView().map((label) => {
    const time = summary.along(label, pass, (row) => row.median_ms);
    const memory = summary.along(label, pass, (row) => row.peak_bytes);
    const [low, ratios, high] = ["low_ms", "median_ms", "high_ms"].map((name) => (
      summary.along(label, pass, (row) => row[name] / row.baseline_ms)));
    const smaller = summary.along(label, pass, (row) => row.peak_bytes / (summary.softmaxMemory(pass, row) || NaN));
    const against = (...given) => ({ text: (!summary.mechanisms.get(label).baseline && crossing(...given)) || "–" });
    return [{ text: label, colour: colourOf(label), place: placeOf(label) }, power(growth(time)), power(growth(memory)), against(ratios, [low, high]),
      { text: summary.byGrowth.get(key(label, pass)) ?? "–" }, against(smaller)];
  });
  const heads = [{ name: "mechanism" }, { name: "time grows as", number: true }, { name: "memory grows as", number: true },
    { name: "faster than softmax" }, { name: "by growth", small: "where it is not measured" }, { name: "smaller than softmax" }];
  table(one("powers"), { heads, rows }, { sortable: true });
}

function showOrigins() {
  const found = new Map();
  for (const { provenance: where } of summary.rows) {
    if (!where) continue;
    const name = JSON.stringify({ ...where, started: "" });
    if (!found.has(name)) found.set(name, { where, started: [] });
    found.get(name).started.push(where.started);
  }
  const rows = [...found.values()].map(({ where, started }) => {
    const [first, last] = [started.reduce((a, b) => (b < a ? b : a)), started.reduce((a, b) => (b > a ? b : a))];
    return [
      where.command, where.commit, `${where.device}; threads: ${where.threads}; ${where.dtype}; allocator: ${where.allocator ?? "unknown"}`,
      Object.entries(where.versions).map((pair) => pair.join(" ")).join(", "), first === last ? first : `${first} – ${last}`, count(started.length),
    ].map((text) => ({ text }));
  });
  const heads = ["command", "commit", "device", "versions", "started", "rows"].map((name) => ({ name }));
  table(one("origins"), { heads, rows });
  const data = new Map();
  for (const row of summary.rows.filter(({ type }) => type === "trained")) data.set(row.task, (data.get(row.task) ?? new Set()).add(row.data_sha256));
  table(one("data"), { heads: [{ name: "task" }, { name: "sha256 of its data" }], rows: [...data].map(([task, sums]) => [{ text: task }, { text: [...sums].join(", ") }]) });
  const lawful = [...summary.checked.values()].filter((row) => row.failed_law === null).map((row) => row.mixer);
  const seeds = [...new Set(summary.rows.filter(({ type }) => type === "trained").map((row) => row.seed))].sort(ascending);
  one("seeds").textContent = seeds.length ? `Seeds: ${seeds.join(", ")}.` : "";
  one("lawful").textContent = lawful.length ? visible(`Kept all their laws before they were measured: ${joined([...new Set(lawful)])}.`) : "";
  const devices = [...new Set([...summary.timed.values()].map((row) => row.provenance.device))];
  one("devices").textContent = devices.length ? visible(`Timed on ${joined(devices)}: ${rules.unit_names[summary.unit]}, on random input, beside that of PyTorch's fused softmax attention in the same run.`) : "";
  one("origins-part").hidden = !rows.length;
}

// ---- the leaderboard as text

const escaped = {
  markdown: (text) => text.replace(/[\\`*_{}[\]|~$]/g, "\\$&").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"),
  latex: (text) => text.replace(/[\\{}$&#^_%~]|[±–×]/g, (c) => ({
    "\\": "\\textbackslash{}", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "±": "$\\pm$", "–": "--", "×": "$\\times$",
  })[c] ?? `\\${c}`),
  // A spreadsheet computes what begins with one of these.
  csv: (text) => (/^[=+\-@]/.test(text) ? `'${text}` : text),
};

const writers = {
  markdown({ heads, rows }) {
    const line = (cells) => `| ${cells.join(" | ")} |`;
    const titles = heads.map(({ name, small }) => escaped.markdown(visible(small ? `${name} (${small})` : name)));
    const body = rows.map((cells) => line(cells.map(({ text, best }) => (best ? `**${escaped.markdown(visible(text))}**` : escaped.markdown(visible(text))))));
    return [line(titles), line(heads.map(({ number }) => (number ? "--:" : ":--"))), ...body].join("\n");
  },
  latex({ heads, rows }) {
    const line = (cells) => `${cells.join(" & ")} \\\\`;
    const titles = heads.map(({ name }) => escaped.latex(visible(name)));
    const body = rows.map((cells) => line(cells.map(({ text, best }) => (best ? `\\textbf{${escaped.latex(visible(text))}}` : escaped.latex(visible(text))))));
    const columns = heads.map(({ number }) => (number ? "r" : "l")).join("");
    return [`\\begin{tabular}{${columns}}`, "\\toprule", line(titles), "\\midrule", ...body, "\\bottomrule", "\\end{tabular}"].join("\n");
  },
  csv({ heads, rows }) {
    const cell = (text) => `"${escaped.csv(visible(text)).replaceAll('"', '""')}"`;
    const titles = heads.map(({ name, small }) => cell(small ? `${name} (${small})` : name));
    const body = rows.map((cells) => cells.map(({ text, value, mark }) => (mark ? "" : value === undefined ? cell(text) : String(value))).join(","));
    return [titles.join(","), ...body].join("\r\n");
  },
};
const endings = { markdown: "md", latex: "tex", csv: "csv" };

function showExport() {
  one("export-text").value = writers[one("format").value](exported);
}

function download(name, text, type) {
  const link = make("a", { download: name });
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy() {
  const text = one("export-text");
  try {
    await navigator.clipboard.writeText(text.value);
    one("copied").textContent = "Copied.";
  } catch {
    text.select();
    one("copied").textContent = "Selected: copy it from here.";
  }
}

// ---- results from elsewhere

async function add(received) {
  const said = [];
  for (const file of received) {
    try {
      demand(file.size <= rules.largest_file, `it is larger than ${size(rules.largest_file)}`);
      const plain = file.name.replace(/\.(html?|json)$/, "") || "results";
      const name = files.some((held) => held.name === plain) ? `${plain} (${files.length})` : plain;
      files.push({ name, ...readResults(await file.text()) });
    } catch (error) {
      said.push(`${file.name} was not added: ${error instanceof Unreadable ? error.message : "it cannot be read"}.`);
    }
  }
  one("refused").textContent = visible(said.join(" "));
  start();
}

function showFiles() {
  one("files").replaceChildren(...files.slice(1).map((file) => {
    const away = make("button", { "aria-label": `Remove ${file.name}` }, "×");
    away.onclick = () => { files.splice(files.indexOf(file), 1); start(); };
    return make("li", {}, short(file.name, 40), " ", away);
  }));
}

// ---- drawing

let width = 0;

function drawCharts(anew) {
  if (!anew && width === document.documentElement.clientWidth) return;
  width = document.documentElement.clientWidth;
  for (const place of document.querySelectorAll(".drawing")) place.draw(Math.max(280, place.clientWidth));
  document.documentElement.dataset.charts = "drawn";
}

function redraw() {
  one("in-view").textContent = `${labelsInView().length} of ${summary.mechanisms.size}`;
  tellChoice();
  put("trade", tradeFigures());
  put("growth", growthFigures());
  put("training", trainingFigures());
  one("trade").classList.toggle("large", labelsInView().length > 14);
  one("growth").classList.toggle("large", labelsInView().length > 14);
  showChoicesByLength();
  showGrowth();
  showLeaderboard();
  drawCharts(true);
}

function start() {
  summary = new Summary(files, chosen.unit);
  offerChoices();
  offerMechanisms();
  showFiles();
  showOrigins();
  redraw();
}

function point(event) {
  const mark = event.target.closest?.("[data-m]");
  document.querySelector("main").classList.toggle("pointing", Boolean(mark?.closest("svg, #mechanisms")));
  for (const element of document.querySelectorAll(".pointed")) element.classList.remove("pointed");
  if (mark) for (const element of document.querySelectorAll(`[data-m="${Number(mark.dataset.m)}"]`)) element.classList.add("pointed");
  const known = facts.get(event.target);
  const tip = one("tip");
  tip.hidden = !known;
  if (!known) return;
  tip.replaceChildren(...known.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, short(value, 80))]));
  const { left, right, bottom, top } = event.target.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(right + 8, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
  const below = top + tip.offsetHeight < innerHeight ? top : bottom - tip.offsetHeight;
  tip.style.top = `${Math.max(4, below)}px`;
  if (right + 8 + tip.offsetWidth > document.documentElement.clientWidth && left - 8 - tip.offsetWidth > 0) tip.style.left = `${left - 8 - tip.offsetWidth}px`;
}

one("task").onchange = ({ target }) => { chosen.task = target.value; chosen.length = null; offerChoices(); redraw(); };
one("pass").onchange = ({ target }) => { chosen.pass = target.value; chosen.length = null; offerChoices(); redraw(); };
one("unit").onchange = ({ target }) => { chosen.unit = target.value; start(); };
one("length").onchange = ({ target }) => { chosen.length = Number(target.value); redraw(); };
one("all").onclick = () => show([...summary.mechanisms.keys()]);
one("none").onclick = () => show([]);
one("front").onclick = () => {
  const { pass, length } = chosen;
  const kept = tasksChosen().flatMap((task) => {
    const points = summary.quality.get(task).flatMap(({ label, mean: value }) => {
      const row = pass && summary.timing(label, pass, length, summary.isLanguage(task));
      return row ? [{ label, value, speed: row.baseline_ms / row.median_ms }] : [];
    });
    return points.length ? pareto(points, summary.quality.get(task)[0].higher).map(({ label }) => label) : [];
  });
  show([...summary.mechanisms.keys()].filter((label) => kept.includes(label) || summary.mechanisms.get(label).baseline));
};
one("search").oninput = ({ target }) => {
  for (const label of one("mechanisms").children) label.hidden = !label.textContent.toLowerCase().includes(target.value.toLowerCase());
};
one("format").onchange = showExport;
one("copy").onclick = copy;
one("save").onclick = () => download(`leaderboard.${endings[one("format").value]}`, one("export-text").value, "text/plain");
one("save-rows").onclick = () => download("results.json", files[0].text, "application/json");
one("file").onchange = ({ target }) => { add([...target.files]); target.value = ""; };
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); add([...event.dataTransfer.files]); });
document.addEventListener("pointerover", point);
new ResizeObserver(() => drawCharts(false)).observe(document.documentElement);
start();
