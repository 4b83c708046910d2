"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

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

function groups(map, by) {
  // Rows of each class, or of each cluster: [name, [row, …]].
  const collection = data.collections[map.collection], of = by === "class" ? collection.labels : map.clusters;
  const found = new Map();
  of.forEach((value, row) => { if (!found.has(value)) found.set(value, []); found.get(value).push(row); });
  const name = (value) => by === "class" ? (value < 0 ? "no label" : collection.classes[value]) : `cluster ${value + 1}`;
  return [...found.entries()].sort((a, b) => a[0] - b[0]).map(([value, rows]) => [name(value), rows]);
}

const place = (map, row) => [2 + 96 * map.x[row], 98 - 96 * map.y[row]];

function drawMap(number) {
  const map = data.maps[number], root = document.getElementById(`map-${number}`);
  const found = groups(map, document.getElementById(`by-${number}`).value);
  const color = (at) => found.length <= data.colors.length ? data.colors[at] : `hsl(${(at * 137) % 360} 60% 55%)`;
  root.querySelector(".dots").replaceChildren(...found.map(([, rows], at) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", rows.map((row) => "M" + place(map, row).map((v) => v.toFixed(2)).join(" ") + "h0").join(""));
    path.setAttribute("stroke", color(at));
    return path;
  }));
  const legend = document.getElementById(`legend-${number}`);
  legend.replaceChildren(...(found.length > 40 ? [] : found.map(([name], at) => {
    const entry = document.createElement("span"), swatch = document.createElement("i");
    swatch.style.background = color(at);
    entry.append(swatch, name);
    entry.addEventListener("mouseenter", () => highlight(root, at));
    entry.addEventListener("mouseleave", () => highlight(root, null));
    return entry;
  })));
}

function highlight(root, at) {
  root.querySelectorAll(".dots path").forEach((path, number) => { path.style.opacity = at === null || at === number ? "" : .1; });
}

function onMap(root, event) {
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(root.getScreenCTM().inverse());
  return [point.x, point.y];
}

function screenPlace(number, row) {
  const root = document.getElementById(`map-${number}`);
  const point = new DOMPoint(...place(data.maps[number], row)).matrixTransform(root.getScreenCTM());
  return [point.x, point.y];
}

function nearestRow(number, [x, y]) {
  const map = data.maps[number];
  let best = 0, least = Infinity;
  for (let row = 0; row < map.x.length; row++) {
    const [a, b] = place(map, row), far = (a - x) ** 2 + (b - y) ** 2;
    if (far < least) { best = row; least = far; }
  }
  return least < 9 ? best : null;
}

function watchMap(number) {
  const root = document.getElementById(`map-${number}`), view = root.viewBox.baseVal;
  let from = null, moved = false;
  root.addEventListener("pointerdown", (event) => { from = onMap(root, event); moved = false; });
  addEventListener("pointerup", () => { from = null; });
  root.addEventListener("pointermove", (event) => {
    const at = onMap(root, event);
    if (from && event.buttons) {
      moved = moved || Math.hypot(at[0] - from[0], at[1] - from[1]) > view.width / 100;
      view.x += from[0] - at[0]; view.y += from[1] - at[1];
    } else { const row = nearestRow(number, at); if (row !== null) show(number, row, false); }
  });
  root.addEventListener("click", (event) => {
    const row = nearestRow(number, onMap(root, event));
    if (!moved && row !== null) show(number, row, true);
  });
  root.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x, y] = onMap(root, event), factor = Math.min(Math.max(Math.exp(event.deltaY / 500), 2 / view.width), 100 / view.width);
    view.x = x - (x - view.x) * factor; view.y = y - (y - view.y) * factor;
    view.width *= factor; view.height *= factor;
  }, { passive: false });
  root.addEventListener("dblclick", () => { view.x = view.y = 0; view.width = view.height = 100; });
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
  watchMap(number);
  document.getElementById(`by-${number}`).addEventListener("change", () => drawMap(number));
  const input = document.getElementById(`row-${number}`), last = map.x.length;
  const go = (step) => {
    const row = Math.min(last, Math.max(1, (parseInt(input.value, 10) || 1) + step)) - 1;
    show(number, row, true);
  };
  input.addEventListener("change", () => go(0));
  document.getElementById(`previous-${number}`).addEventListener("click", () => go(-1));
  document.getElementById(`next-${number}`).addEventListener("click", () => go(1));
  show(number, 0, true); // so that the panel has something to show from the start
});
document.body.dataset.drawn = "yes";
