const read = (id) => JSON.parse(document.getElementById(id).textContent);
const charts = read("charts");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 480px)");
const views = new Map();

const look = () => ({
  background: "transparent",
  font: getComputedStyle(document.body).fontFamily,
  view: { stroke: null },
  axis: {
    labelColor: style("--soft"), titleColor: style("--soft"), gridColor: style("--line"), domainColor: style("--line"),
    tickColor: style("--line"), titleFontWeight: "normal", titleFontSize: 12, labelFontSize: 11,
  },
  text: { color: style("--ink") },
});

const control = (name) => document.querySelector(`select[name="${name}"]`);

async function turn(view) {
  for (const name of ["kind", "length"]) {
    const chosen = control(name);
    if (chosen) view.signal(name, name === "length" ? Number(chosen.value) : chosen.value);
  }
  await view.runAsync();
}

async function draw() {
  for (const [id, { wide, narrow: small, turns }] of Object.entries(charts)) {
    const options = { actions: false, renderer: "svg", config: look(), tooltip: { theme: dark.matches ? "dark" : "light" } };
    views.get(id)?.finalize();
    const drawn = await vegaEmbed(document.getElementById(id), narrow.matches ? small : wide, options);
    views.set(id, drawn);
    if (turns) await turn(drawn.view);
  }
  document.documentElement.dataset.charts = "drawn";
}

function offerLengths() {
  const lengths = control("length");
  const present = read("lengths")[control("kind").value];
  const held = Number(lengths.value);
  lengths.replaceChildren(...present.map((n) => new Option(n.toLocaleString("en"), n)));
  lengths.value = present.includes(held) ? held : present.at(-1);
}

function choose() {
  const [kind, length] = [control("kind").value, control("length").value];
  for (const part of document.querySelectorAll("[data-view]")) part.hidden = part.dataset.view !== `${kind} ${length}`;
  for (const part of document.querySelectorAll("[data-kind]")) part.hidden = part.dataset.kind !== kind;
  for (const [id, { turns }] of Object.entries(charts)) if (turns && views.has(id)) turn(views.get(id).view);
}

function sortBy(header) {
  const up = header.getAttribute("aria-sort") !== "ascending";
  const body = header.closest("table").tBodies[0];
  const key = (row) => row.cells[header.cellIndex].dataset.value ?? row.cells[header.cellIndex].textContent;
  const compare = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = Number.isNaN(Number(x)) ? x.localeCompare(y) : Number(x) - Number(y);
    return up ? order : -order;
  };
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...[...body.rows].sort(compare));
}

for (const button of document.querySelectorAll("th button")) button.onclick = () => sortBy(button.parentNode);
if (control("kind")) {
  control("kind").onchange = () => { offerLengths(); choose(); };
  control("length").onchange = choose;
  choose();
}
dark.addEventListener("change", draw);
narrow.addEventListener("change", draw);
draw();
