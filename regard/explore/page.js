// The page: one state, drawn anew where it changes. Every text goes in as a text node.

const data = read("explored");
const $ = (id) => document.getElementById(id);
const state = { example: 0, group: 0, layer: 0, head: 0, window: 0, query: 0, key: 0, sort: null, down: true };
const MOST_LINES = 36; // tokens on either side of the lines
const STRONGEST = 12;
const DRAWN_TOKENS = 2048; // buttons in one text

const example = () => data.examples[state.example];
const clamp = (value, count) => Math.max(0, Math.min(value, count - 1));
const groupOf = (side) => side.groups[clamp(state.group, side.groups.length)];
const figures = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString());
const word = (text) => make("bdi", {}, text); // letters from right to left leave what is around them in its order
const nameOf = (side) => (data.models.length > 1 ? data.models[side] : "");

// What one side shows for the state: its own layers and heads may be fewer.
function shownBy(side) {
  const group = groupOf(side);
  if (!group) return null;
  const layer = clamp(state.layer, group.sheets.length);
  return {
    group, layer, sheet: group.sheets[layer],
    head: clamp(state.head, group.sheets[layer].data.length), window: clamp(state.window, group.windows.length),
  };
}

function options(select, names, value) {
  select.replaceChildren(...names.map((name, place) => make("option", { value: place }, name)));
  select.value = String(value);
}

function drawControls() {
  const first = example().sides[0];
  const group = groupOf(first);
  options($("example"), data.examples.map(({ label }) => label), state.example);
  $("head-part").hidden = $("model-part").hidden = $("statistics-part").hidden = !group;
  for (const id of ["group", "layer", "head", "search"]) $(id).parentElement.hidden = !group;
  $("window-part").hidden = !group || group.windows.length < 2;
  if (!group) return;
  state.group = clamp(state.group, first.groups.length);
  state.layer = clamp(state.layer, group.sheets.length);
  state.head = clamp(state.head, group.sheets[state.layer].data.length);
  state.window = clamp(state.window, group.windows.length);
  options($("group"), first.groups.map(({ name }) => name), state.group);
  options($("layer"), group.sheets.map(({ name, mechanism }, n) => `${n + 1}: ${mechanism} (${name})`), state.layer);
  options($("head"), group.sheets[state.layer].data.map((_, n) => String(n + 1)), state.head);
  options($("window"), group.windows.map(([top, bottom, left, right]) => `queries ${top + 1}–${bottom}, keys ${left + 1}–${right}`), state.window);
}

// ------------------------------------------------------------------ all heads

async function drawModel() {
  const parts = example().sides.map(async (side, n) => {
    const group = groupOf(side);
    if (!group) return make("figure");
    const heads = Math.max(...group.sheets.map((sheet) => sheet.data.length));
    const [rows, cols] = group.thumbnails.size;
    const codes = await inflate(group.thumbnails.codes);
    const grid = make("div", { class: "grid-of-heads", role: "group", "aria-label": "all heads" });
    const width = heads > 16 ? 30 : heads > 8 ? 42 : 64;
    grid.style.gridTemplateColumns = `repeat(${heads}, minmax(24px, ${width}px))`;
    let place = 0;
    group.sheets.forEach((sheet, layer) => {
      sheet.data.forEach((_, head) => {
        const canvas = make("canvas");
        paint(canvas, codes.subarray(place * rows * cols, (place + 1) * rows * cols), rows, cols);
        place += 1;
        const button = make("button", { "aria-label": `layer ${layer + 1}, head ${head + 1}`, "data-layer": layer, "data-head": head, tabindex: -1 }, canvas);
        button.style.gridRow = layer + 1;
        button.style.gridColumn = head + 1;
        button.style.aspectRatio = `${Math.max(cols / rows, 0.4)}`;
        button.addEventListener("click", () => choose({ layer, head }));
        grid.append(button);
      });
    });
    grid.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      const layer = clamp(state.layer + step[0], group.sheets.length);
      choose({ layer, head: clamp(state.head + step[1], group.sheets[layer].data.length) });
      grid.querySelector("[aria-pressed=true]")?.focus();
    });
    const kinds = [...new Set(group.sheets.map(({ mechanism, kind }) => `${mechanism} (${KINDS[kind]})`))].join(", ");
    return make("figure", {}, make("figcaption", {}, [nameOf(n), kinds].filter(Boolean).join(": ")), grid);
  });
  $("model").replaceChildren(...(await Promise.all(parts)));
  markHead();
}

const KINDS = {
  stochastic: "weights, rows sum to 1", nonnegative: "weights, rows do not sum to 1", signed: "signed weights, red below 0",
  influence: "influence: norms of derivatives",
};

function markHead() {
  for (const button of document.querySelectorAll(".grid-of-heads button")) {
    const here = Number(button.dataset.layer) === state.layer && Number(button.dataset.head) === state.head;
    button.setAttribute("aria-pressed", String(here));
    button.tabIndex = here ? 0 : -1;
  }
  for (const row of document.querySelectorAll("#statistics tbody tr")) {
    row.classList.toggle("chosen", Number(row.dataset.layer) === state.layer && Number(row.dataset.head) === state.head);
  }
}

// ------------------------------------------------------------------ one head

const views = []; // one for each side: {shown, weights, canvas, mark, texts, lines, table}

function buildHeads() {
  views.length = 0;
  $("heads").replaceChildren(...example().sides.map((side, n) => {
    const shown = shownBy(side);
    if (!shown) return make("figure");
    const { group } = shown;
    const canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": "matrix of queries and keys; arrow keys move" });
    const mark = make("div", { class: "row" });
    const rows = group.cross ? strip(group.rows, "query") : null;
    const cols = strip(group.cols, group.cross ? "key" : "query", group.prefix);
    const lines = make("div");
    const table = make("table", { class: "strongest" });
    const caption = make("figcaption");
    const view = { side: n, shown, canvas, mark, rows, cols, lines, table, caption };
    views.push(view);
    canvas.addEventListener("pointermove", (event) => tip(event, view));
    canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
    canvas.addEventListener("click", (event) => {
      const [query, key] = cell(event, view);
      choose({ query, key });
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [top, bottom, left, right] = view.shown.group.windows[view.shown.window];
      choose({
        query: Math.max(top, Math.min(state.query + step[0], bottom - 1)),
        key: Math.max(left, Math.min(state.key + step[1], right - 1)),
      });
    });
    const texts = rows ? [make("h3", {}, "queries"), rows.element, make("h3", {}, "keys"), cols.element] : [cols.element];
    const columns = [
      [make("div", { class: "matrix" }, canvas, mark), ...texts],
      [make("h3", {}, "strongest keys of the query"), make("div", { class: "scroll" }, table)],
      [make("h3", {}, "lines from queries to keys"), lines],
    ];
    return make("figure", {}, caption, make("div", { class: "columns" }, ...columns.map((parts) => make("div", {}, ...parts))));
  }));
}

// Words as buttons that choose a query, or as plain text where they are keys alone.
function strip(words, kind, prefix = 0) {
  const shown = words.slice(0, DRAWN_TOKENS);
  const parts = shown.map((word, place) => {
    const clickable = kind === "query" && place >= prefix;
    const part = make(clickable ? "button" : "span", { "data-place": place }, word === "" ? "∅" : word);
    if (clickable) part.addEventListener("click", () => choose({ query: place - prefix }));
    return part;
  });
  return { parts, prefix, element: make("div", { class: "text", "data-kind": kind }, ...parts) };
}

function cell(event, view) {
  const box = view.canvas.getBoundingClientRect();
  const { top, bottom, left, right } = view.weights;
  const row = top + clamp(Math.floor(((event.clientY - box.top) / box.height) * (bottom - top)), bottom - top);
  return [row, left + clamp(Math.floor(((event.clientX - box.left) / box.width) * (right - left)), right - left)];
}

function tip(event, view) {
  if (!view.weights) return;
  const [row, col] = cell(event, view);
  const { group } = view.shown;
  $("tip").hidden = false;
  $("tip").replaceChildren(word(group.rows[row]), " → ", word(group.cols[col]), `: ${figures(view.weights.at(row, col))}`);
  $("tip").style.left = `${Math.min(event.clientX + 14, innerWidth - 220)}px`;
  $("tip").style.top = `${event.clientY + 14}px`;
}

let turn = 0; // of the drawing under way; an older one that is still unpacking is dropped

async function drawHeads() {
  const began = performance.now();
  turn += 1;
  const own = turn;
  const found = await Promise.all(views.map((view) => {
    const { group } = view.shown;
    view.shown = { ...shownBy(example().sides[view.side]), group };
    return weightsOf(group, view.shown.layer, view.shown.head, view.shown.window);
  }));
  if (own !== turn) return;
  views.forEach((view, n) => {
    view.weights = found[n];
    const { group, sheet, layer, head } = view.shown;
    const { codes, top, bottom, left, right } = view.weights;
    paint(view.canvas, codes, bottom - top, right - left, view.weights);
    const outside = sheet.external ? `; ${figures(100 * sheet.external[head])} % of its weight goes to external tokens` : "";
    const about = `layer ${layer + 1}, head ${head + 1}: ${sheet.mechanism}, ${KINDS[sheet.kind]}${outside}`;
    view.caption.replaceChildren(...[nameOf(view.side), about].filter(Boolean).join(": "));
    view.canvas.style.aspectRatio = String(Math.min(3, Math.max(0.4, (right - left) / (bottom - top)))); // long rows stay readable
    view.canvas.parentElement.style.maxWidth = group.rows.length < 4 ? "100%" : `${Math.min(560, Math.max(240, (right - left) * 24))}px`;
  });
  markHead();
  drawQuery();
  drawSimilarity();
  document.documentElement.dataset.switched = String(performance.now() - began);
}

// Everything that depends on the query alone.
function drawQuery() {
  for (const view of views) {
    if (!view.weights) continue;
    const { group } = view.shown;
    const { top, bottom, left, right, at } = view.weights;
    const query = Math.max(top, Math.min(state.query, bottom - 1));
    const row = Array.from({ length: right - left }, (_, n) => ({ key: left + n, weight: at(query, left + n) }));
    const most = Math.max(...row.map(({ weight }) => Math.abs(weight)), 1e-30);
    view.mark.style.top = `${(100 * (query - top)) / (bottom - top)}%`;
    view.mark.style.height = `${100 / (bottom - top)}%`;
    const share = new Map(row.map(({ key, weight }) => [key, weight]));
    view.cols.parts.forEach((part, place) => {
      const weight = share.get(place) ?? 0;
      part.style.setProperty("--w", (Math.abs(weight) / most).toFixed(3));
      part.classList.toggle("negative", weight < 0);
      if (!view.rows) part.classList.toggle("query", place - group.prefix === query);
    });
    view.rows?.parts.forEach((part, place) => part.classList.toggle("query", place === query));
    drawStrongest(view, row, query);
    drawLines(view, query);
  }
  drawDifference();
  drawImages();
}

function drawStrongest(view, row, query) {
  const { group } = view.shown;
  const best = [...row].sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight)).slice(0, STRONGEST).filter(({ weight }) => weight !== 0);
  const head = make("tr", {}, make("th", {}, "from ", word(group.rows[query]), ` (${query + 1}) to`), make("th", { class: "number" }, "place"), make("th", { class: "number" }, "weight"));
  view.table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...best.map(({ key, weight }) => make("tr", {},
    make("td", {}, group.cols[key]), make("td", { class: "number" }, key < group.prefix ? "–" : key - group.prefix + 1), make("td", { class: "number" }, figures(weight))))));
}

// Two columns of tokens around the query; a line's opacity is its weight, the query's own are stronger.
function drawLines(view, query) {
  const { group } = view.shown;
  const { top, bottom, left, right, at, most } = view.weights;
  const from = Math.max(top, Math.min(query - MOST_LINES / 2, bottom - MOST_LINES));
  const near = group.cross ? Math.round((query / group.rows.length) * group.cols.length) : query + group.prefix;
  const start = Math.max(left, Math.min(near - MOST_LINES / 2, right - MOST_LINES));
  const rows = Array.from({ length: Math.min(MOST_LINES, bottom - from) }, (_, n) => from + n);
  const cols = Array.from({ length: Math.min(MOST_LINES, right - start) }, (_, n) => start + n);
  const height = 17 * Math.max(rows.length, cols.length) + 8;
  const svg = drawn("svg", { class: "lines", width: 420, height, viewBox: `0 0 420 ${height}`, role: "img", "aria-label": "lines from queries to keys" });
  const y = (n) => 14 + 17 * n;
  rows.forEach((row, i) => {
    cols.forEach((col, j) => {
      const weight = at(row, col);
      const size = most ? Math.abs(weight) / most : 0;
      if (size < 0.05) return;
      const opacity = row === query ? Math.min(1, 0.25 + size) : size * 0.18;
      svg.append(drawn("line", { x1: 150, x2: 270, y1: y(i) - 4, y2: y(j) - 4, opacity, class: weight < 0 ? "negative" : null }));
    });
  });
  const cutShort = (text) => ([...text].length > 18 ? `${[...text].slice(0, 17).join("")}…` : text);
  rows.forEach((row, i) => svg.append(drawn("text", { x: 144, y: y(i), "text-anchor": "end", class: row === query ? "query" : "dim" }, cutShort(group.rows[row]))));
  cols.forEach((col, j) => svg.append(drawn("text", { x: 276, y: y(j) }, cutShort(group.cols[col]))));
  view.lines.replaceChildren(svg);
}

// How far the two sides' rows of this query, and all rows, are apart.
function drawDifference() {
  const [a, b] = views;
  $("difference").hidden = !(a?.weights && b?.weights);
  if ($("difference").hidden) return;
  const [v, w] = [a.weights, b.weights];
  if (v.bottom - v.top !== w.bottom - w.top || v.right - v.left !== w.right - w.left) {
    $("difference").textContent = "The two matrices have different sizes.";
    return;
  }
  const apart = (row) => {
    const cols = Array.from({ length: v.right - v.left }, (_, n) => [Math.abs(v.at(row, v.left + n)), Math.abs(w.at(row, w.left + n))]);
    const [s, t] = [0, 1].map((n) => cols.reduce((sum, pair) => sum + pair[n], 0) || 1);
    return cols.reduce((sum, [p, q]) => sum + Math.abs(p / s - q / t), 0) / 2;
  };
  const query = Math.max(v.top, Math.min(state.query, v.bottom - 1));
  const step = Math.max(1, Math.floor((v.bottom - v.top) / 64));
  const rows = Array.from({ length: Math.ceil((v.bottom - v.top) / step) }, (_, n) => apart(v.top + n * step));
  const mean = rows.reduce((sum, value) => sum + value, 0) / rows.length;
  $("difference").textContent = `Share of weight that the two place differently: ${figures(100 * apart(query))} % for this query, ${figures(100 * mean)} % on average.`;
}

// ------------------------------------------------------------------ images

function drawImages() {
  const { image } = example();
  $("image-part").hidden = !image || !views.length;
  if ($("image-part").hidden) return;
  const across = image.width / image.patch;
  $("images").replaceChildren(...views.filter(({ weights }) => weights).map((view) => {
    const { top, bottom, left, right, at } = view.weights;
    const query = Math.max(top, Math.min(state.query, bottom - 1));
    const picture = make("canvas", { role: "img", "aria-label": "the image; click to choose the query" });
    const heat = make("canvas", { role: "img", "aria-label": "what the query attends to" });
    [picture.width, picture.height] = [image.width, image.height];
    const pixels = new ImageData(image.width, image.height);
    const plane = image.width * image.height;
    for (let i = 0; i < plane; i += 1) {
      for (let c = 0; c < 3; c += 1) pixels.data[4 * i + c] = image.shades[(image.channels >= 3 ? c : 0) * plane + i];
      pixels.data[4 * i + 3] = 255;
    }
    const pen = picture.getContext("2d");
    pen.putImageData(pixels, 0, 0);
    pen.fillStyle = "#d29922";
    pen.globalAlpha = 0.75;
    pen.fillRect((query % across) * image.patch, Math.floor(query / across) * image.patch, image.patch, image.patch);
    const rows = image.height / image.patch;
    const sizes = Array.from({ length: rows * across }, (_, n) => (n + view.shown.group.prefix >= left && n + view.shown.group.prefix < right ? Math.abs(at(query, n + view.shown.group.prefix)) : 0));
    const most = Math.max(...sizes, 1e-30);
    paint(heat, Uint8Array.from(sizes, (size) => Math.round(255 * Math.sqrt(size / most))), rows, across);
    picture.addEventListener("click", (event) => {
      const box = picture.getBoundingClientRect();
      const x = clamp(Math.floor(((event.clientX - box.left) / box.width) * across), across);
      const y = clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), rows);
      choose({ query: y * across + x });
    });
    return make("figure", { class: "image" }, make("figcaption", {}, nameOf(view.side) || "query and keys"), picture, heat);
  }));
}

// ------------------------------------------------------------------ numbers

const COLUMNS = ["entropy", "distance", "self", "previous", "next", "first"];

function drawStatistics() {
  const group = groupOf(example().sides[0]);
  if (!group) return;
  const rows = group.sheets.flatMap((sheet, layer) => sheet.data.map((_, head) => ({
    layer, head, mechanism: sheet.mechanism, ...Object.fromEntries(COLUMNS.map((name) => [name, sheet.statistics[name][head]])),
  })));
  if (state.sort) {
    const value = (row) => row[state.sort] ?? -Infinity;
    rows.sort((a, b) => (typeof value(a) === "string" ? value(a).localeCompare(value(b)) : value(a) - value(b)) * (state.down ? -1 : 1));
  }
  const heading = (name) => {
    const button = make("button", {}, name);
    button.addEventListener("click", () => {
      state.down = state.sort === name ? !state.down : true;
      state.sort = name;
      drawStatistics();
    });
    return make("th", { class: COLUMNS.includes(name) ? "number" : null, "aria-sort": state.sort === name ? (state.down ? "descending" : "ascending") : null }, button);
  };
  const body = rows.map((row) => {
    const line = make("tr", { "data-layer": row.layer, "data-head": row.head, tabindex: 0 },
      make("td", {}, row.layer + 1), make("td", {}, row.head + 1), make("td", {}, row.mechanism),
      ...COLUMNS.map((name) => make("td", { class: "number" }, figures(row[name]))));
    line.addEventListener("click", () => choose({ layer: row.layer, head: row.head }));
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") choose({ layer: row.layer, head: row.head }); });
    return line;
  });
  $("statistics").replaceChildren(make("thead", {}, make("tr", {}, ...["layer", "head", "mechanism", ...COLUMNS].map(heading))), make("tbody", {}, ...body));
  markHead();
}

let drawnSimilarity = "";

function drawSimilarity() {
  const key = [state.example, state.group, state.layer].join();
  if (key === drawnSimilarity) return;
  drawnSimilarity = key;
  $("similarity").replaceChildren(...example().sides.map((side, n) => {
    const shown = shownBy(side);
    if (!shown) return make("figure");
    const { divergence } = shown.sheet;
    const size = Math.max(12, Math.min(34, 320 / divergence.length));
    const edge = 22 + size * divergence.length;
    const svg = drawn("svg", { class: "alike", width: edge, height: edge, viewBox: `0 0 ${edge} ${edge}`, role: "img", "aria-label": "similarity of heads" });
    divergence.forEach((line, i) => {
      svg.append(drawn("text", { x: 0, y: 22 + size * (i + 0.6) }, i + 1), drawn("text", { x: 22 + size * (i + 0.3), y: 14 }, i + 1));
      line.forEach((value, j) => svg.append(drawn("rect", { x: 20 + size * j, y: 20 + size * i, width: size, height: size, "fill-opacity": 1 - (value ?? 0) / Math.LN2 },
        drawn("title", {}, `heads ${i + 1} and ${j + 1}: ${figures(value)} nats`))));
    });
    const pairs = divergence.flatMap((line, i) => line.slice(i + 1));
    const mean = pairs.reduce((sum, value) => sum + value, 0) / pairs.length;
    const about = pairs.length ? `layer ${shown.layer + 1}, mean divergence ${figures(mean)} nats` : `layer ${shown.layer + 1} has one head`;
    return make("figure", {}, make("figcaption", {}, [nameOf(n), about].filter(Boolean).join(": ")), svg);
  }));
}

// ------------------------------------------------------------------ attributions and documents

function shaded(words, scores) {
  const most = Math.max(...scores.map(Math.abs), 1e-30);
  return make("div", { class: "text" }, ...words.map((word, n) => {
    const part = make("span", { class: scores[n] < 0 ? "negative" : null, title: figures(scores[n]) }, word);
    part.style.setProperty("--w", (Math.abs(scores[n]) / most).toFixed(3));
    return part;
  }));
}

function drawAttributions() {
  const sides = example().sides;
  $("attribution-part").hidden = !sides.some(({ attribution }) => attribution);
  $("attributions").replaceChildren(...sides.filter(({ attribution }) => attribution).map(({ attribution }, n) => {
    const methods = attribution.methods.map(([name, scores]) => make("div", { class: "method" }, make("b", {}, name), shaded(attribution.words, scores)));
    const reasons = attribution.reasons.map(([name, reason]) => make("li", {}, `${name}: ${reason}`));
    const head = ["two methods", "Kendall", "Spearman", "top 5 shared"].map((name, i) => make("th", { class: i ? "number" : null }, name));
    const rows = attribution.agreement.map(([first, second, ...values]) => make("tr", {}, make("td", {}, `${first}, ${second}`), ...values.map((value) => make("td", { class: "number" }, figures(value)))));
    return make("figure", {}, make("figcaption", {}, nameOf(n)), ...methods, reasons.length ? make("ul", { class: "notes" }, ...reasons) : "",
      rows.length ? make("div", { class: "scroll" }, make("table", { class: "agreement" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))) : "");
  }));
}

function drawDocument() {
  const sides = example().sides;
  $("document-part").hidden = !sides.some(({ document: found }) => found);
  $("document").replaceChildren(...sides.filter(({ document: found }) => found).map(({ document: { words, weights, sentences } }, n) => {
    const most = Math.max(...sentences, 1e-30);
    const lines = words.map((sentence, i) => make("div", { class: "sentence" },
      make("meter", { min: 0, max: most, value: sentences[i], title: figures(sentences[i]) }), shaded(sentence, weights[i])));
    return make("figure", {}, make("figcaption", {}, nameOf(n)), ...lines);
  }));
}

// ------------------------------------------------------------------ search and state

let matches = [];

function search() {
  const wanted = $("search").value.toLowerCase();
  matches = [];
  for (const part of document.querySelectorAll("#heads .text > *")) {
    const hit = wanted !== "" && part.textContent.toLowerCase().includes(wanted);
    part.classList.toggle("found", hit);
    if (hit && part.tagName === "BUTTON" && part.closest("figure") === $("heads").firstElementChild) matches.push(part);
  }
  $("matches").textContent = wanted === "" ? "" : `${matches.length} found`;
}

function nextMatch() {
  if (!matches.length) return;
  const prefix = groupOf(example().sides[0]).cross ? 0 : groupOf(example().sides[0]).prefix;
  const places = matches.map((part) => Number(part.dataset.place) - prefix);
  const query = places.find((place) => place > state.query) ?? places[0];
  const { windows } = groupOf(example().sides[0]);
  const window = windows.findIndex(([top, bottom, left, right]) => query >= top && query < bottom && query >= left && query < right);
  choose({ query, ...(window >= 0 ? { window } : {}) });
}

async function choose(change) {
  const before = { ...state };
  Object.assign(state, change);
  if (state.example !== before.example || state.group !== before.group) return drawAll();
  if (state.window !== before.window) [state.query, state.key] = change.query === undefined
    ? groupOf(example().sides[0]).windows[state.window].filter((_, i) => i % 2 === 0) : [state.query, state.key];
  if (state.layer !== before.layer || state.head !== before.head || state.window !== before.window) {
    drawControls();
    await drawHeads();
  } else {
    drawQuery();
  }
  const [view] = views;
  if (view?.weights && change.key !== undefined) {
    const [row, col] = [clamp(state.query, view.shown.group.rows.length), clamp(state.key, view.shown.group.cols.length)];
    view.canvas.setAttribute("aria-label", visible(`${view.shown.group.rows[row]} → ${view.shown.group.cols[col]}: ${figures(view.weights.at(row, col))}`));
  }
  return undefined;
}

async function drawAll() {
  drawnSimilarity = "";
  drawControls();
  drawDocument();
  buildHeads();
  drawStatistics();
  drawAttributions();
  await drawModel();
  await drawHeads();
  drawImages();
  search();
}

for (const id of ["example", "group", "layer", "head", "window"]) {
  $(id).addEventListener("change", (event) => choose({ [id]: Number(event.target.value), ...(id === "example" || id === "group" ? { query: 0, key: 0 } : {}) }));
}
$("search").addEventListener("input", search);
$("search").addEventListener("keydown", (event) => { if (event.key === "Enter") nextMatch(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  palette = null;
  drawAll();
});
await drawAll();
document.documentElement.dataset.charts = "drawn";
