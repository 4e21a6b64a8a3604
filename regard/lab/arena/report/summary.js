// The reading of the rows: the same rules as in summary.py, here for any mechanisms that the reader leaves in view.

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
};
const key = (...parts) => JSON.stringify(parts);
// Half of Student's interval at 95 % for their mean; null for one.
function halfWidth(values) {
  if (values.length < 2) return null;
  const center = mean(values);
  const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (values.length - 1);
  return rules.student[Math.min(values.length - 1, rules.student.length) - 1] * Math.sqrt(variance / values.length);
}
const unitOf = (row) => row.unit ?? "layer";
const ascending = (a, b) => a - b;

class Summary {
  // files: [{name, rows, mechanisms, notes}]; the first is the page's own, the others were dropped on it.
  // unit: whose timings count; blocks where there are any, if it is null.
  constructor(files, unit = null) {
    const units = new Set(files.flatMap(({ rows }) => rows.filter((row) => row.type === "timed" && row.mechanism !== null).map(unitOf)));
    this.units = rules.units.filter((one) => units.has(one));
    this.unit = this.units.includes(unit) ? unit : this.units[0] ?? "block";
    this.mechanisms = new Map(); // label -> {label, family, baseline}
    this.notes = [];
    this.reasons = new Map(); // [label, subject] -> why there is nothing
    this.timed = new Map(); // [label, pass, length, causal] -> row
    this.checked = new Map(); // [mixer, options] -> row
    this.rows = [];
    const measured = new Map(); // task -> its data and metric
    const runs = new Map(); // [task, label] -> runs
    this.byGrowth = new Map(); // [label, pass] -> from which length it is faster, in words
    for (const [place, { name, rows, mechanisms, notes, byGrowth }] of files.entries()) {
      const own = place === 0;
      const labelled = (label) => (own ? label : `${label} · ${name}`);
      for (const entry of mechanisms) this.mechanisms.set(labelled(entry.label), { ...entry, label: labelled(entry.label) });
      for (const pass of rules.passes) {
        const words = byGrowth[this.unit]?.[pass];
        if (Array.isArray(words)) mechanisms.forEach(({ label }, i) => { if (isText(words[i])) this.byGrowth.set(key(labelled(label), pass), words[i]); });
      }
      this.notes.push(...notes.map((note) => (own ? note : `${name}: ${note}`)));
      const elsewhere = new Set();
      let otherData = 0;
      for (const row of rows) {
        this.rows.push(row);
        if (row.type === "checked") this.checked.set(key(row.mixer, row.options), row);
        if (row.mechanism === null) continue;
        const label = labelled(row.mechanism);
        if (row.type === "not run") this.reasons.set(key(label, row.subject), row.reason);
        if (row.type === "timed" && unitOf(row) === this.unit) {
          this.timed.set(key(label, row.kind, row.length, row.causal), row);
          elsewhere.add(`${row.provenance.device}, ${row.provenance.dtype}, dim ${row.dim}, ${row.num_heads} heads`);
        }
        if (row.type === "trained") {
          const { regard, torch } = row.provenance.versions;
          const measure = key(row.data_sha256, row.metric, row.task_source ?? null, regard ?? null, torch?.split("+")[0] ?? null);
          if (!measured.has(row.task)) measured.set(row.task, measure);
          if (measured.get(row.task) === measure) {
            if (!runs.has(key(row.task, label))) runs.set(key(row.task, label), []);
            runs.get(key(row.task, label)).push(row);
          } else {
            otherData += 1;
          }
        }
      }
      if (!own && elsewhere.size) this.notes.push(`${name}: timed on ${[...elsewhere].join("; ")}, each beside its own softmax.`);
      if (otherData) this.notes.push(`${name}: ${otherData} runs on other data, another metric, or another version of the task, of regard or of torch left out.`);
    }
    this.tasks = [...measured.keys()].sort();
    this.quality = new Map(this.tasks.map((task) => [task, this.#ranked(task, runs)]));
    const passes = new Set([...this.timed.values()].map((row) => row.kind));
    this.passes = rules.passes.filter((pass) => passes.has(pass));
    const timings = [...this.timed.keys()].map((name) => JSON.parse(name));
    this.lengths = new Map(this.passes.map((pass) => [
      pass, [...new Set(timings.filter(([, p]) => p === pass).map(([, , length]) => length))].sort(ascending),
    ]));
    this.causal = new Map(this.passes.map((pass) => {
      const of = timings.filter(([, p]) => p === pass);
      return [pass, of.filter(([, , , causal]) => causal).length * 2 >= of.length];
    }));
  }

  // The qualities on one task, best first.
  #ranked(task, runs) {
    const found = [];
    for (const label of this.mechanisms.keys()) {
      const of = runs.get(key(task, label));
      if (!of) continue;
      const values = of.map((run) => run.value);
      found.push({
        task, label, runs: of, mean: mean(values), low: Math.min(...values), high: Math.max(...values),
        metric: of[0].metric, higher: of[0].better === "higher", parameters: median(of.map((run) => run.parameters)),
        get spread() { return halfWidth(values); },
      });
    }
    return found.sort((a, b) => (a.higher ? b.mean - a.mean : a.mean - b.mean));
  }

  isLanguage(task) {
    return this.quality.get(task).some(({ runs: [run] }) => run.causal ?? rules.language_metrics.includes(run.metric));
  }

  tasksFor(pass) {
    return this.tasks.filter((task) => pass !== "decode" || this.isLanguage(task));
  }

  // Longest input that a task was trained on; null where the rows do not say.
  trainedLength(task) {
    const lengths = this.quality.get(task).flatMap(({ runs }) => runs.map((run) => run.length ?? 0));
    return Math.max(0, ...lengths) || null;
  }

  // The shortest length timed for most mechanisms at which quality on these tasks is known too, or else the longest.
  usualLength(pass, tasks = this.tasks) {
    const at = new Map(this.lengths.get(pass).map((length) => [length, new Set()]));
    for (const name of this.timed.keys()) {
      const [label, of, length] = JSON.parse(name);
      if (of === pass) at.get(length).add(label);
    }
    const most = Math.max(...[...at.values()].map((labels) => labels.size));
    const common = [...at.keys()].filter((length) => at.get(length).size === most);
    const trained = Math.max(0, ...tasks.map((task) => this.trainedLength(task) ?? 0));
    return (trained && common.find((length) => length >= trained)) || common.at(-1);
  }

  timing(label, pass, length, causal = this.causal.get(pass)) {
    return this.timed.get(key(label, pass, length, causal)) ?? this.timed.get(key(label, pass, length, !causal));
  }

  // Why there is no quality on this task, or no timing of this pass at this length.
  whyEmpty(label, subject, length = null) {
    const reason = this.reasons.get(key(label, subject));
    if (reason !== undefined) return reason;
    if (length === null) return "Not trained yet.";
    const others = this.lengths.get(subject).filter((n) => this.timing(label, subject, n));
    return others.length ? `Timed at ${others.map(count).join(", ")} tokens only.` : "Not timed yet.";
  }

  // The fastest of those about as good as the best; softmax where nothing as good is measurably faster.
  decide(task, pass, length, inView) {
    const ranked = this.quality.get(task).filter(({ label }) => inView(label));
    if (!ranked.length) return null;
    const best = ranked[0];
    const allowed = rules.tolerance * Math.abs(best.mean);
    const good = ranked.filter((q) => Math.abs(q.mean - best.mean) <= Math.max(allowed, best.spread ?? 0, q.spread ?? 0));
    const causal = this.isLanguage(task);
    const timed = good.map((quality) => ({ quality, row: this.timing(quality.label, pass, length, causal) }));
    const present = timed.filter(({ row }) => row).map((entry) => ({ ...entry, ratio: entry.row.median_ms / entry.row.baseline_ms }));
    if (!present.length) return null;
    let choice = present.reduce((a, b) => (b.ratio < a.ratio ? b : a));
    const faster = measurablyFaster(choice.row);
    const softmax = present.find(({ quality }) => this.mechanisms.get(quality.label).baseline);
    if (softmax && !faster) choice = softmax;
    return {
      task, best, choice: choice.quality.label, quality: choice.quality, row: choice.row, ratio: choice.ratio,
      level: present.filter((e) => e !== choice && Math.abs(e.ratio / choice.ratio - 1) < rules.level).map((e) => e.quality.label),
      untimed: timed.filter(({ row }) => !row).map(({ quality }) => quality.label),
    };
  }

  // [length, value] of one mechanism's pass; quantity: row -> number.
  along(label, pass, quantity) {
    const points = [];
    for (const length of this.lengths.get(pass)) {
      const row = this.timing(label, pass, length);
      const value = row && quantity(row, length);
      if (value > 0) points.push([length, value]);
    }
    return points;
  }

  softmaxMemory(pass, row) {
    for (const { label, baseline } of this.mechanisms.values()) {
      const found = baseline && this.timed.get(key(label, pass, row.length, row.causal));
      if (found) return found.peak_bytes;
    }
    return null;
  }
}

const measurablyFaster = (row) => row.median_ms / row.baseline_ms < 1 - rules.level && row.high_ms < row.baseline_ms;

// Where a ratio to softmax falls below 1 for good, in words; `quartiles` of the ratio give its bounds.
function crossing(points, quartiles = null) {
  if (!points.length) return null;
  const [first, last] = [points[0][0], points.at(-1)[0]];
  if (Math.abs(points.at(-1)[1] - 1) < rules.level) return `about level at ${count(last)}`;
  const at = belowOne(points);
  if (at === null) return `not up to ${count(last)}`;
  if (at <= first) return `at every length from ${count(first)}`;
  const two = (length) => (length === null ? `over ${count(last)}` : count(Number(length.toPrecision(2))));
  const [low, high] = (quartiles ?? [points, points]).map((of) => two(belowOne(of)));
  return `about ${two(at)}${low === high ? "" : ` (${low} to ${high})`}`;
}

// The same as a length, interpolated on log-log; null where it is not reached.
function belowOne(points) {
  const above = points.findLastIndex(([, ratio]) => ratio >= 1);
  if (above === points.length - 1) return null;
  if (above < 0) return points[0][0];
  const [[n0, r0], [n1, r1]] = points.slice(above, above + 2);
  const share = Math.log(r0) / (Math.log(r0) - Math.log(r1));
  return Math.exp(Math.log(n0) + share * (Math.log(n1) - Math.log(n0)));
}

// The power of the length by which a cost grows, least squares on log-log, with its standard error; null below 3 lengths.
function growth(points) {
  if (points.length < 3) return null;
  const [x, y] = [0, 1].map((i) => points.map((point) => Math.log(point[i])));
  const [mx, my] = [mean(x), mean(y)];
  const spread = x.reduce((sum, v) => sum + (v - mx) ** 2, 0);
  const power = x.reduce((sum, v, i) => sum + (v - mx) * (y[i] - my), 0) / spread;
  const left = x.reduce((sum, v, i) => sum + (y[i] - my - power * (v - mx)) ** 2, 0);
  return { power, error: Math.sqrt(left / (points.length - 2) / spread) };
}

// Those that no other one beats in both speed and quality, fastest first.
function pareto(points, higher) {
  const front = [];
  const sorted = [...points].sort((a, b) => b.speed - a.speed || (higher ? b.value - a.value : a.value - b.value));
  for (const point of sorted) {
    const held = front.at(-1)?.value;
    if (held === undefined || (higher ? point.value > held : point.value < held)) front.push(point);
  }
  return front;
}
