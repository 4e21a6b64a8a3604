// Reading: what was received is checked against the rules, field by field, and is only ever shown as text.

const rules = read("rules");
const OPENING = 'id="results">'; // of the element that holds a page's results

class Unreadable extends Error {}

function demand(holds, complaint) {
  if (!holds) throw new Unreadable(complaint);
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isText = (value) => typeof value === "string" && value.length <= rules.longest_text;
const isNumber = (value) => typeof value === "number" && Math.abs(value) <= rules.largest_number;
const isWhole = (value) => Number.isInteger(value) && Math.abs(value) <= rules.largest_whole;
const fits = {
  text: isText,
  whole: isWhole,
  number: isNumber,
  flag: (value) => typeof value === "boolean",
  options: isObject,
  texts: (value) => isObject(value) && Object.values(value).every(isText),
  curve: (value) => Array.isArray(value)
    && value.every((point) => Array.isArray(point) && point.length === 2 && isWhole(point[0]) && isNumber(point[1])),
};

function checkField(name, rule, value) {
  if (value === null && rule.none) return;
  const good = rule.type === "word" ? rule.words.includes(value) : fits[rule.type](value);
  demand(good && (rule.least === null || value >= rule.least), `the field ${name} has a wrong type or value`);
}

function checkedRow(kind, values) {
  const schema = rules.schema[kind];
  for (const name of values.keys()) demand(Object.hasOwn(schema, name), `the field ${name} is unknown`);
  for (const [name, rule] of Object.entries(schema)) {
    if (rule.type === "origin") values.set(name, checkedRow("origin", values.get(name)));
    else if (values.has(name)) checkField(name, rule, values.get(name));
    else demand(!rule.required, `the field ${name} is missing`);
  }
  return Object.fromEntries(values);
}

// The rows of a page, or of a JSON file that was saved from one: [{type, mechanism, ...fields}].
function readResults(text) {
  const start = text.indexOf(OPENING);
  const json = start < 0 ? text : text.slice(start + OPENING.length, text.indexOf("</", start));
  let content;
  try {
    content = JSON.parse(json);
  } catch {
    throw new Unreadable("it holds no results as JSON");
  }
  demand(isObject(content) && content.format === rules.format, `it is not of format ${rules.format}`);
  const { fields, rows, origins, labels, mechanisms, notes } = content;
  const byGrowth = isObject(content.by_growth) ? content.by_growth : {};
  demand([rows, origins, labels, mechanisms, notes].every(Array.isArray) && isObject(fields), "a part is missing");
  demand(notes.every(isText), "a note is no text");
  for (const entry of mechanisms) {
    demand(isObject(entry) && isText(entry.label) && isText(entry.family), "a mechanism has no label or family");
    demand(typeof entry.baseline === "boolean", "a mechanism does not say whether it is the baseline");
  }
  const found = rows.map((row, place) => {
    demand(Array.isArray(row) && rules.kinds.includes(row[0]), "a row has no kind");
    const names = fields[row[0]];
    demand(Array.isArray(names) && names.length === row.length - 1, "a row has too few or too many fields");
    const values = new Map(names.map((name, i) => [name, row[i + 1]]));
    if (values.has("provenance")) {
      const [origin, started] = Array.isArray(values.get("provenance")) ? values.get("provenance") : [];
      demand(isWhole(origin) && isObject(origins[origin]), "a row has no origin");
      values.set("provenance", new Map([...Object.entries(origins[origin]), ["started", started]]));
    } else {
      demand(!rules.schema[row[0]].provenance, "a row has no origin");
    }
    const label = labels[place];
    demand(label === null || (isWhole(label) && isObject(mechanisms[label])), "a row has no mechanism");
    return { type: row[0], mechanism: label === null ? null : mechanisms[label].label, ...checkedRow(row[0], values) };
  });
  return { rows: found, mechanisms, notes, byGrowth, text: json };
}
