"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

function drawCharts() {
  for (const [id, chart] of Object.entries(data.charts))
    Plotly.react(document.getElementById(id), chart.data, page.layout(chart.layout), { ...page.config, scrollZoom: false });
}

function thumb(map, row, tag, scale) {
  const collection = data.collections[map.collection], { side, perRow, perSheet } = collection.sheet;
  const place = row % perSheet, element = document.createElement(tag);
  element.className = `thumb sheet-${map.collection}-${Math.floor(row / perSheet)}`;
  element.style.width = element.style.height = `${side * scale + 4}px`;
  element.style.backgroundSize = `${perRow * side * scale}px auto`;
  element.style.backgroundPosition = `-${(place % perRow) * side * scale}px -${Math.floor(place / perRow) * side * scale}px`;
  const name = nameOf(map, row);
  element.title = name;
  element.setAttribute("aria-label", name);
  if (tag !== "button") element.setAttribute("role", "img");
  return element;
}

function nameOf(map, row) {
  const collection = data.collections[map.collection], label = collection.labels[row];
  return collection.names[row] + (label >= 0 ? ` (${collection.classes[label]})` : "");
}

function drawMap(number) {
  const map = data.maps[number], collection = data.collections[map.collection];
  const root = document.getElementById(`map-${number}`), by = document.getElementById(`by-${number}`).value;
  const groups = page.groups(collection.labels, collection.classes, map.clusters, by);
  const traces = page.dots(groups, map.x, map.y, data.colors, 5);
  const plain = { visible: false, fixedrange: false };
  Plotly.react(root, traces, page.layout({ xaxis: plain, yaxis: plain, dragmode: page.mode("pan"), showlegend: traces.length > 1,
    margin: { l: 5, r: 5, t: 5, b: 5 }, legend: { orientation: "h", y: 0 } }), page.config);
  if (root.dataset.ready) return;
  root.dataset.ready = "yes";
  root.on("plotly_hover", (event) => show(number, event.points[0].customdata, false));
  root.on("plotly_click", (event) => show(number, event.points[0].customdata, true));
}

const current = {};
function show(number, row, withNeighbors) {
  const map = data.maps[number], collection = data.collections[map.collection];
  const panel = document.getElementById(`panel-${number}`);
  const hovered = panel.querySelector(".hovered"), clicked = panel.querySelector(".clicked");
  hovered.replaceChildren(thumb(map, row, "span", 160 / collection.sheet.side), caption(nameOf(map, row)));
  hovered.dataset.row = row;
  if (!withNeighbors) return;
  current[number] = row;
  const strip = document.createElement("div");
  strip.className = "strip";
  map.neighbors[row].forEach((other) => {
    const button = thumb(map, other, "button", 56 / collection.sheet.side);
    if (collection.labels[row] >= 0) {
      const right = collection.labels[other] === collection.labels[row];
      button.classList.add(right ? "right" : "wrong");
      button.setAttribute("aria-label", `${nameOf(map, other)}, ${right ? "same" : "another"} class`);
    }
    button.addEventListener("click", () => { show(number, other, true); clicked.querySelector("button")?.focus(); });
    strip.append(button);
  });
  clicked.replaceChildren(caption(`Nearest to ${nameOf(map, row)}:`), strip);
  clicked.dataset.row = row;
  document.getElementById(`row-${number}`).value = row + 1;
}

function caption(text) {
  const element = document.createElement("p");
  element.className = "name";
  element.textContent = text; // never HTML: file names may hold anything
  return element;
}

data.maps.forEach((map, number) => {
  drawMap(number);
  document.getElementById(`by-${number}`).addEventListener("change", () => drawMap(number));
  const input = document.getElementById(`row-${number}`), last = map.x.length;
  const go = (step) => {
    const row = Math.min(last, Math.max(1, (parseInt(input.value, 10) || 1) + step)) - 1;
    show(number, row, true);
  };
  input.addEventListener("change", () => go(0));
  document.getElementById(`previous-${number}`).addEventListener("click", () => go(-1));
  document.getElementById(`next-${number}`).addEventListener("click", () => go(1));
});
drawCharts();
page.onTheme(() => { drawCharts(); data.maps.forEach((_, number) => drawMap(number)); });
document.body.dataset.drawn = "yes";
