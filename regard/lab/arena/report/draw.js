// Charts as SVG. Names go in as text nodes; attributes are numbers, or names from this file.

const COLOURS = 12; // in page.css, as .c0 to .c11; the baseline is .base
const LINE = 13;
const MOST_DOTS = 1500; // in one chart of lines; beyond, each line has one at its end
const pen = document.createElement("canvas").getContext("2d");
pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
const widthOf = (text) => pen.measureText(text).width; // of a label, in pixels
const facts = new WeakMap(); // element -> what pointing at it shows

// Both ends of a long text: names of one family differ in the last letters.
const short = (text, most) => {
  const letters = [...visible(text)];
  if (letters.length <= most) return letters.join("");
  return `${letters.slice(0, Math.ceil(most / 2)).join("")}…${letters.slice(1 - Math.floor(most / 2)).join("")}`;
};

// A function from values to pixels, with its ticks; `room` is the share of the range left free at both ends.
function scale(values, from, to, { log = false, room = 0.08, ticks = null } = {}) {
  const forth = log ? Math.log : (v) => v;
  const [least, most] = [Math.min(...values), Math.max(...values)].map(forth);
  const free = room * (most - least) || Math.abs(most) * 0.1 || 1;
  const [low, high] = [least - free, most + free];
  const at = (value) => from + ((forth(value) - low) / (high - low)) * (to - from);
  at.ticks = ticks ?? (log ? powers(Math.exp(low), Math.exp(high)) : evenly(low, high));
  return at;
}

function powers(low, high) {
  const steps = Math.log10(high / low) <= 2.5 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    found.push(...steps.map((step) => Number(`${step}e${power}`)).filter((value) => low <= value && value <= high));
  }
  const every = Math.ceil(found.length / 9);
  return found.filter((_, i) => i % every === 0);
}

function evenly(low, high) {
  const rough = (high - low) / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5].find((factor) => factor * unit >= rough) ?? 10);
  const first = Math.ceil(low / step);
  const found = Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  return found;
}

const tickText = (value) => {
  const large = Math.abs(value);
  if (large >= 1e6 || (large < 1e-3 && value !== 0)) return value.toExponential().replace("e+", "e");
  return value.toLocaleString("en", { maximumSignificantDigits: 6 });
};

// The empty chart: grid, ticks and titles. `box` is {left, right, top, bottom} in pixels.
function frame(width, height, name, box, x, y, { xTitle, yTitle, xText = tickText, yText = tickText }) {
  const svg = drawn("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
  let free = -Infinity; // labels of the x axis keep out of each other's way
  for (const tick of x.ticks) {
    const [at, text] = [x(tick), xText(tick)];
    svg.append(drawn("line", { class: "grid", x1: at, x2: at, y1: box.top, y2: box.bottom }));
    const half = widthOf(text) / 2;
    if (at - half < free || at + half > width) continue;
    free = at + half + 6;
    svg.append(drawn("text", { class: "tick", x: at, y: box.bottom + 16, "text-anchor": "middle" }, text));
  }
  for (const tick of y.ticks) {
    const at = y(tick);
    svg.append(drawn("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }));
    svg.append(drawn("text", { class: "tick", x: box.left - 7, y: at + 4, "text-anchor": "end" }, yText(tick)));
  }
  svg.append(drawn("text", { class: "title", x: box.right, y: box.bottom + 34, "text-anchor": "end" }, xTitle));
  svg.append(drawn("text", { class: "title", x: 0, y: 12 }, short(yTitle, Math.floor(width / 7))));
  return svg;
}

// Label positions: beside the mark, at the least crowded of the places around it; null where none is free.
function placeLabels(marks, box) {
  const area = (a, b) => Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
  const discs = marks.map(({ x, y, r }) => [x - r, y - r, x + r, y + r]);
  const taken = [];
  const found = new Map();
  for (const mark of [...marks].sort((a, b) => b.r - a.r)) {
    const half = widthOf(mark.text) / 2;
    let best = null;
    for (const gap of [5, 13, 25, 38]) {
      const [side, up] = [mark.r + gap + half, mark.r + gap + LINE / 2];
      for (const [dx, dy] of [[0, -up], [side, 0], [-side, 0], [0, up], [side * 0.8, -up * 0.8], [side * 0.8, up * 0.8], [-side * 0.8, -up * 0.8], [-side * 0.8, up * 0.8]]) {
        const [x, y] = [mark.x + dx, mark.y + dy];
        const own = [x - half, y - LINE / 2, x + half, y + LINE / 2];
        if (own[0] < box.left || own[2] > box.right || own[1] < box.top || own[3] > box.bottom) continue;
        const labels = taken.reduce((sum, other) => sum + area(own, other), 0);
        const cost = labels * 8 + discs.reduce((sum, disc, i) => sum + (marks[i] === mark ? 0 : area(own, disc)), 0) + gap * 4;
        if (!best || cost < best.cost) best = { x, y, own, cost, hidden: labels > LINE * 6 };
      }
    }
    found.set(mark, best?.hidden ? null : best);
    if (best && !best.hidden) taken.push(best.own);
  }
  return marks.map((mark) => found.get(mark));
}

// Quality against speed against memory. points: [{label, place, colour, speed, value, low, high, bytes, facts}].
function tradeChart(width, name, points, { metric, higher }) {
  const crowded = points.length > 14;
  const height = crowded ? (width < 520 ? 620 : 560) : Math.round(Math.min(460, Math.max(300, width * 0.62)));
  const box = { left: 52, right: width - 8, top: 26, bottom: height - 42 };
  const x = scale([...points.map((p) => p.speed), 0.8, 1.25], box.left, box.right, { log: true, room: 0.12 });
  const ends = [box.bottom, box.top];
  const y = scale(points.flatMap((p) => [p.low, p.high]), ...(higher ? ends : ends.toReversed()), { room: 0.14 });
  const svg = frame(width, height, name, box, x, y, {
    xTitle: "times as fast as softmax · faster →", yTitle: `${metric} · better ↑`, xText: (v) => `${tickText(v)}×`,
  });
  svg.append(drawn("line", { class: "level", x1: x(1), x2: x(1), y1: box.top, y2: box.bottom }));
  const front = pareto(points, higher);
  svg.append(drawn("polyline", { class: "front", points: front.map((p) => `${x(p.speed).toFixed(1)},${y(p.value).toFixed(1)}`).join(" ") }));
  const most = Math.max(...points.map((p) => p.bytes));
  const largest = crowded ? 500 : 1500;
  const marks = points.map((point) => ({
    point, x: x(point.speed), y: y(point.value), text: short(point.label, width < 520 ? 20 : 32),
    r: Math.sqrt(Math.max(40, most ? (largest * point.bytes) / most : 0) / Math.PI),
  }));
  for (const { point, x: cx, y: cy, r } of [...marks].sort((a, b) => b.r - a.r)) {
    if (point.high > point.low) {
      svg.append(drawn("line", { class: `seeds ${point.colour}`, x1: cx, x2: cx, y1: y(point.low), y2: y(point.high), "data-m": point.place }));
    }
    const circle = drawn("circle", { class: `mark ${point.colour}${front.includes(point) ? " on-front" : ""}`, cx, cy, r, "data-m": point.place });
    facts.set(circle, point.facts);
    svg.append(circle);
  }
  const placed = placeLabels(marks, { ...box, left: 0 });
  marks.forEach(({ point, text }, i) => {
    if (!placed[i]) return;
    const { x: at, y: down } = placed[i];
    svg.append(drawn("text", { class: "label", x: at, y: down + 4, "text-anchor": "middle", "data-m": point.place }, text));
  });
  svg.append(drawn("text", { class: "tick", x: box.left, y: box.bottom + 34 }, width < 460 ? `area: to ${size(most)}` : `area: peak memory, largest ${size(most)}`));
  return svg;
}

// Lines with their names at the right end. lines: [{label, place, colour, points: [{x, y, low, high, facts}]}].
function lineChart(width, name, lines, { xTitle, yTitle, log = true, xTicks = null, trained = null }) {
  const named = new Map(lines.map((line) => [line.label, line])); // the last line of each name
  const height = Math.max(width < 520 ? 260 : 300, LINE * named.size + 78);
  const most = width < 520 ? 17 : 30;
  const longest = Math.max(...[...named.keys()].map((label) => widthOf(short(label, most))));
  const box = { left: 52, right: width - longest - 12, top: 26, bottom: height - 42 };
  const all = lines.flatMap(({ points }) => points);
  const x = scale(all.map((p) => p.x), box.left, box.right, { log, room: 0.03, ticks: xTicks });
  const y = scale(all.flatMap((p) => [p.low, p.y, p.high]), box.bottom, box.top, { log, room: 0.06 });
  const svg = frame(width, height, name, box, x, y, { xTitle, yTitle });
  if (trained !== null && x(trained) > box.left) {
    const edge = Math.min(x(trained), box.right);
    svg.prepend(drawn("rect", { class: "trained", x: box.left, y: box.top, width: edge - box.left, height: box.bottom - box.top }));
  }
  const crowded = all.length > MOST_DOTS;
  for (const { place, colour, points } of lines) {
    const along = points.map((p) => `${x(p.x).toFixed(1)},${y(p.y).toFixed(1)}`).join(" ");
    svg.append(drawn("polyline", { class: `line ${colour}`, points: along, "data-m": place }));
    for (const point of crowded ? points.slice(-1) : points) {
      if (point.high > point.low) {
        svg.append(drawn("line", { class: `quartiles ${colour}`, x1: x(point.x), x2: x(point.x), y1: y(point.low), y2: y(point.high), "data-m": place }));
      }
      const dot = drawn("circle", { class: `dot ${colour}`, cx: x(point.x), cy: y(point.y), r: 3, "data-m": place });
      facts.set(dot, point.facts);
      svg.append(dot);
    }
  }
  const ends = [...named.values()].map((line) => ({ line, wanted: y(line.points.at(-1).y) })).sort((a, b) => a.wanted - b.wanted);
  const heights = spreadOut(ends.map(({ wanted }) => wanted), box.top, box.bottom);
  ends.forEach(({ line }, i) => {
    svg.append(drawn("text", { class: `label ${line.colour}`, x: box.right + 8, y: heights[i] + 4, "data-m": line.place }, short(line.label, most)));
  });
  return svg;
}

// Sorted heights, moved apart to a line's distance within [low, high].
function spreadOut(wanted, low, high) {
  const at = wanted.map((value) => Math.min(Math.max(value, low), high));
  for (let i = 1; i < at.length; i += 1) at[i] = Math.max(at[i], at[i - 1] + LINE);
  if (at.length && at.at(-1) > high) at[at.length - 1] = high;
  for (let i = at.length - 2; i >= 0; i -= 1) at[i] = Math.min(at[i], at[i + 1] - LINE);
  return at;
}
