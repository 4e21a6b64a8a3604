// Time and memory of a mechanism beside fused softmax attention, at the length that the slider shows: one length for the page, of all
// that were measured.
"use strict";

const CHINESE = {
  "pass": "计算", "ms": "毫秒", "softmax ms": "softmax 毫秒", "times as fast": "快几倍",
  "forward": "前向", "train": "训练", "core": "仅内核", "layer": "整层", "causal": "因果", "tokens": "个 token",
  "Not measured at this length.": "这一长度没有测量。",
  "length at which it is shown:": "显示的长度：",
};

function said(box, text) {
  return box.closest("[lang]").lang === "zh" ? text.split(", ").map((words) => CHINESE[words] ?? words).join("，") : text;
}

function cell(row, text, className) {
  const made = row.insertCell();
  made.textContent = text;
  if (className) made.className = className;
}

function figure(value) {
  if (value === null) return "-";
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function draw(box, rows, length) {
  const here = rows.filter((row) => row.length === length);
  box.replaceChildren();
  if (!here.length) {
    box.textContent = said(box, "Not measured at this length.");
    return;
  }
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const title of ["pass", "ms", "softmax ms", "times as fast", "MiB", "softmax MiB"]) {
    const th = document.createElement("th");
    th.textContent = said(box, title);
    head.append(th);
  }
  const body = table.createTBody();
  for (const row of here) {
    const line = body.insertRow();
    cell(line, said(box, row.what));
    cell(line, figure(row.ms));
    cell(line, figure(row.softmax_ms));
    const gain = row.ms === null ? null : row.softmax_ms / row.ms;
    cell(line, figure(gain), gain === null || gain === 1 ? "" : gain > 1 ? "gain" : "loss");
    cell(line, figure(row.mib));
    cell(line, figure(row.softmax_mib));
  }
  box.append(table);
}

document.addEventListener("DOMContentLoaded", () => {
  const holders = [...document.querySelectorAll(".saved")];
  const measured = holders.map((holder) => JSON.parse(holder.dataset.rows));
  const lengths = [...new Set(measured.flat().map((row) => row.length))].sort((a, b) => a - b);
  const all = [];
  const show = (index) => {
    for (const { slider, label, box, rows } of all) {
      slider.value = index;
      label.textContent = `${lengths[index].toLocaleString("en")} ${said(box, "tokens")}`;
      draw(box, rows, lengths[index]);
    }
  };
  for (const [n, holder] of holders.entries()) {
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: lengths.length - 1, step: 1, value: 1 });
    slider.setAttribute("aria-label", `${said(holder, "length at which it is shown:")} ${holder.dataset.mixer}`);
    const label = document.createElement("output");
    const box = document.createElement("div");
    box.className = "figures";
    const bar = document.createElement("label");
    bar.append(slider, label);
    holder.append(bar, box);
    slider.addEventListener("input", () => show(Number(slider.value)));
    all.push({ slider, label, box, rows: measured[n] });
  }
  if (holders.length) show(Math.min(1, lengths.length - 1));
});
