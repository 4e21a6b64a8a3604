// Numbers and findings in words, as words.py puts them.

const three = (value) => (value >= 99.5 ? value.toFixed(0) : trimmed(value, 3));
const trimmed = (value, digits) => String(Number(value.toPrecision(digits)));
const count = (value) => Math.round(value).toLocaleString("en");
const metricName = (name) => name.replaceAll("_", " ");

function speedWords(speed) {
  if (speed >= 9.95) return `${count(speed)}×`;
  return speed >= 0.995 ? `${speed.toFixed(1)}×` : `${trimmed(speed, 2)}×`;
}

function size(value, unit = "B") {
  for (const [power, prefix] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= power) return `${three(value / power)} ${prefix}${unit}`.trim();
  }
  return `${value.toFixed(0)} ${unit}`.trim();
}

const milliseconds = (value) => `${three(value)} ms`;
const qualityWords = (q) => q.mean.toFixed(3) + (q.spread === null ? "" : ` ± ${q.spread.toFixed(3)}`);

function joined(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join("");
}

function few(names, most = 6) {
  return names.length > most ? `${names.slice(0, most).join(", ")} and ${names.length - most} more` : joined(names);
}

// What to take, what it gains and what it costs.
function decisionWords(found, summary) {
  const name = metricName(found.quality.metric);
  const speed = summary.mechanisms.get(found.choice).baseline
    ? "nothing as good was measurably faster" : `${speedWords(1 / found.ratio)} as fast as fused softmax`;
  const cost = found.choice === found.best.label
    ? `${name} ${qualityWords(found.best)}, the best measured`
    : `${name} ${qualityWords(found.quality)} against ${qualityWords(found.best)} for the best, ${found.best.label}`;
  const level = found.level.length ? `; ${few(found.level)} about as fast and as good` : "";
  const untimed = found.untimed.length ? `; ${few(found.untimed)} as good but not timed here` : "";
  return `${speed}, ${cost}${level}${untimed}`;
}

const MOST_CHOICES = 4; // that a headline names

// Before anything was trained.
function fastestWords(summary, labels, pass, length) {
  const name = rules.pass_names[pass];
  const about = `${name[0].toUpperCase()}${name.slice(1)} at ${count(length)} tokens`;
  let best = null;
  for (const label of labels.filter((one) => !summary.mechanisms.get(one).baseline)) {
    const row = summary.timing(label, pass, length);
    const ratio = row && row.median_ms / row.baseline_ms;
    if (row && measurablyFaster(row) && (!best || ratio < best.ratio)) best = { label, ratio };
  }
  if (!best) return `${about}: nothing is measurably faster than softmax; no quality is known yet.`;
  return `${about}: ${best.label} is fastest, ${speedWords(1 / best.ratio)} as fast as softmax; no quality is known yet.`;
}

function headlineWords(decisions, pass, length) {
  const about = `${rules.pass_names[pass]} at ${count(length)} tokens`;
  if (!decisions.length) return `Nothing to choose from yet: no mechanism in view was both trained and timed (${about}).`;
  const by = new Map();
  for (const { choice, task } of decisions) by.set(choice, [...(by.get(choice) ?? []), task]);
  if (by.size > MOST_CHOICES) return `${about[0].toUpperCase()}${about.slice(1)}: no single choice; ${by.size} mechanisms share ${decisions.length} tasks.`;
  const parts = by.size === 1 && decisions.length > 1
    ? [`${decisions[0].choice} on every task measured`]
    : [...by].map(([choice, tasks]) => `${choice} for ${joined(tasks)}`);
  return `${about[0].toUpperCase()}${about.slice(1)}: ${parts.join("; ")}.`;
}
