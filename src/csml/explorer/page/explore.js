"use strict";
const $ = (id) => document.getElementById(id);
const state = { shown: [], selected: new Set() };
let info, x, y, labels, clusters, predicted, entropies;

async function start() {
  info = await (await fetch("/api/summary")).json();
  const values = new Float32Array(await (await fetch("/api/points")).arrayBuffer()), n = info.count;
  [x, y, labels, clusters, predicted, entropies] = [0, 1, 2, 3, 4, 5].map((row) => values.subarray(row * n, (row + 1) * n));
  $("title").textContent = `${info.name}: ${n.toLocaleString()} images`;
  $("settings").textContent = info.settings;
  $("finetune").textContent = info.finetune;
  $("labelled").textContent = info.labelled;
  fill($("class"), info.classes.map((name, place) => [name, place]));
  fill($("cluster"), [...new Set(clusters)].sort((a, b) => a - b).map((c) => [`cluster ${c + 1}`, c]));
  [...info.classes, ...info.predicted].filter((name, place, all) => all.indexOf(name) === place).forEach((name) => {
    const option = document.createElement("option"); option.value = name; $("known").append(option);
  });
  if (!info.classes.length) { $("class-filter").hidden = true; $("by").value = "cluster"; $("by").options[0].disabled = true; }
  if (!info.predicted.length) $("entropy-filter").hidden = true;
  const comparable = info.predicted.some((name) => info.classes.includes(name));
  if (!comparable) $("wrong-filter").hidden = true;
  $("entropy").max = entropies.reduce((most, value) => Math.max(most, value), 0.01);
  for (const id of ["by", "class", "cluster", "wrong", "entropy"]) $(id).addEventListener("input", draw);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  draw();
  $("map").on("plotly_hover", (event) => current(event.points[0].customdata));
  $("map").on("plotly_click", (event) => neighbors(event.points[0].customdata));
  $("map").on("plotly_selected", (event) => { if (event) select(event.points.map((point) => point.customdata), true); });
  $("map").on("plotly_deselect", () => select([], true));
  await neighbors(0);
  $("status").textContent = "Click a point to see similar images; lasso a group to label or export it.";
  document.body.dataset.drawn = "yes";
}

function fill(select, pairs) {
  pairs.forEach(([name, value]) => select.append(new Option(name, value)));
}

function draw() {
  const by = $("by").value, only = $("class").value, cluster = $("cluster").value, least = Number($("entropy").value);
  $("entropy-value").textContent = least.toFixed(2);
  state.shown = [];
  for (let row = 0; row < info.count; row++) {
    if (only !== "" && labels[row] !== Number(only)) continue;
    if (cluster !== "" && clusters[row] !== Number(cluster)) continue;
    if ($("wrong").checked && !isWrong(row)) continue;
    if (least > 0 && entropies[row] < least) continue;
    state.shown.push(row);
  }
  const groups = page.groups(state.shown.map((row) => labels[row]), info.classes, state.shown.map((row) => clusters[row]), by);
  const rows = groups.map(([name, places]) => [name, places.map((place) => state.shown[place])]);
  const traces = page.dots(rows, x, y, info.colors, info.count > 20000 ? 3 : 5);
  const plain = { visible: false };
  const layout = page.layout({ xaxis: { ...plain, range: [-0.02, 1.02] }, yaxis: { ...plain, range: [-0.02, 1.02] },
    margin: { l: 5, r: 5, t: 5, b: 5 }, legend: { orientation: "h", y: 0 }, uirevision: "kept",
    showlegend: traces.length > 1, selections: [],
    dragmode: $("mode-lasso").getAttribute("aria-pressed") === "true" ? "lasso" : page.mode("pan") });
  Plotly.react($("map"), traces, layout, page.config);
  $("map").dataset.points = state.shown.length;
  $("status").textContent = `${state.shown.length.toLocaleString()} of ${info.count.toLocaleString()} images shown`;
}

function isWrong(row) {
  return labels[row] >= 0 && predicted[row] >= 0 && info.classes[labels[row]] !== info.predicted[predicted[row]];
}

function describe(row) {
  const parts = [info.names[row]];
  if (labels[row] >= 0) parts.push(`class ${info.classes[labels[row]]}`);
  if (predicted[row] >= 0) parts.push(`predicted ${info.predicted[predicted[row]]} (entropy ${entropies[row].toFixed(2)})`);
  return parts.join(", ");
}

function picture(row, size) {
  const image = document.createElement("img");
  image.src = `/thumb/${row}?${info.key}`; image.width = image.height = size; image.loading = "lazy";
  image.alt = image.title = describe(row);
  return image;
}

function text(words) {
  const element = document.createElement("p");
  element.className = "name"; element.textContent = words; // never HTML: file names may hold anything
  return element;
}

function current(row) {
  const link = document.createElement("a");
  link.href = `/image/${row}`; link.target = "_blank"; link.append(picture(row, 160));
  $("current").replaceChildren(link, text(describe(row)));
  $("current").dataset.row = row;
}

async function neighbors(row) {
  current(row);
  $("row").value = row + 1;
  list(await (await fetch(`/api/neighbors/${row}`)).json(), `Nearest to ${info.names[row]}:`);
}

function step(by) { neighbors(Math.min(info.count, Math.max(1, (parseInt($("row").value, 10) || 1) + by)) - 1); }

function list(pairs, title) {
  const strip = document.createElement("div");
  strip.className = "strip";
  for (const [row, similarity] of pairs) {
    const button = document.createElement("button");
    button.type = "button"; button.className = "thumb"; button.append(picture(row, 64)); button.dataset.row = row;
    button.title = `${describe(row)}, similarity ${similarity.toFixed(3)}`;
    button.addEventListener("click", async () => { await neighbors(row); $("neighbors").querySelector("button").focus(); });
    strip.append(button);
  }
  const all = document.createElement("button");
  all.type = "button"; all.textContent = "Select these";
  all.addEventListener("click", () => select(pairs.map(([row]) => row)));
  $("neighbors").replaceChildren(text(title), strip, all);
}

function select(rows, instead) {
  if (instead) state.selected.clear();
  rows.forEach((row) => state.selected.add(row));
  $("selected").textContent = state.selected.size;
  $("chosen").replaceChildren(...[...state.selected].slice(0, 24).map((row) => picture(row, 40)));
}

function clear() { select([], true); draw(); }

async function search(file) {
  $("status").textContent = `Searching images similar to ${file.name} …`;
  const answer = await fetch("/api/search", { method: "POST", body: file });
  if (!answer.ok) { $("status").textContent = await answer.text(); return; }
  const found = await answer.json();
  list(found, `Most like ${file.name}:`);
  current(found[0][0]);
  $("status").textContent = `${file.name} is most like ${info.names[found[0][0]]}`;
}

function setMode(lasso) {
  $("mode-lasso").setAttribute("aria-pressed", lasso);
  $("mode-pan").setAttribute("aria-pressed", !lasso);
  draw();
}

$("mode-pan").addEventListener("click", () => setMode(false));
$("mode-lasso").addEventListener("click", () => setMode(true));
$("select-shown").addEventListener("click", () => select(state.shown, true));
$("clear").addEventListener("click", clear);
$("show-all").addEventListener("click", () => { $("filters").reset(); if (!info.classes.length) $("by").value = "cluster"; draw(); });
$("file").addEventListener("change", () => { if ($("file").files.length) search($("file").files[0]); });
$("drop").addEventListener("dragover", (event) => event.preventDefault());
$("drop").addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer.files.length) search(event.dataTransfer.files[0]);
});
$("export").addEventListener("click", () => {
  const names = [...state.selected].sort((a, b) => a - b).map((row) => info.names[row]).join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([names], { type: "text/plain" }));
  link.download = "images.txt"; link.click(); URL.revokeObjectURL(link.href);
});
$("give").addEventListener("click", async () => {
  const label = $("label").value.trim();
  if (!label || !state.selected.size) { $("status").textContent = "Select some images and write a label first."; return; }
  const body = JSON.stringify({ ids: [...state.selected], label });
  const answer = await fetch("/api/label", { method: "POST", body, headers: { "Content-Type": "application/json" } });
  if (!answer.ok) { $("status").textContent = await answer.text(); return; }
  const answered = await answer.json();
  $("labelled").textContent = answered.labelled;
  const done = `${state.selected.size} images labelled ${label}, in ${answered.file}`;
  clear();
  $("status").textContent = done;
});
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("row").addEventListener("change", () => step(0));
page.onTheme(draw);
start().catch((error) => { $("status").textContent = `Something went wrong: ${error}`; });
