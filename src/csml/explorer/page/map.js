// The map: points, marks and thumbnails over them; moving, zooming, picking, lasso and box.
import { Camera } from "./camera.js";
import { paint } from "./coloring.js";
import { say } from "./dialogs.js";
import { describe, focus, labelOf, model, on, select, suggestionOf, toggle } from "./model.js";
import { looksOf } from "./palette.js";
import { Points } from "./points.js";
import { Spatial } from "./spatial.js";
import { drawable, picture } from "./thumbs.js";

const $ = (id) => document.getElementById(id);
const REACH = 12, CLICK = 4; // pixels: how near a click has to be, how far it may move
const THUMB = 52, MOST_THUMBS = 250, MOST_MARKS = 500;
const element = $("map"), marks = $("marks").getContext("2d"), tip = $("tip");
export const camera = new Camera();
let points, spatial, mode = "pan", path = null, held = new Map(), pinch = 0, moved = false, hovered = -1, waiting = false, restyle = true, color, look;
export const times = {}; // milliseconds of the last lasso and frame, for the benchmark

export function startMap(openNeighbors) {
  points = new Points($("dots"));
  if (!points.gl) say("This browser has no WebGL, so the map is drawn slowly.");
  for (const name of ["pan", "lasso", "box"]) $(`mode-${name}`).addEventListener("click", () => setMode(name));
  $("zoom-in").addEventListener("click", () => { camera.zoom(1.5); redraw(); });
  $("zoom-out").addEventListener("click", () => { camera.zoom(1 / 1.5); redraw(); });
  $("fit").addEventListener("click", () => { camera.fit(); redraw(); });
  element.addEventListener("wheel", (event) => { event.preventDefault(); camera.zoom(Math.exp(-event.deltaY * 0.002), ...at(event)); redraw(); }, { passive: false });
  element.addEventListener("pointerdown", press);
  element.addEventListener("pointermove", (event) => (held.has(event.pointerId) ? drag(event) : hover(event)));
  element.addEventListener("pointerup", (event) => release(event, openNeighbors));
  element.addEventListener("pointercancel", () => { held.clear(); path = null; redraw(); });
  element.addEventListener("pointerleave", () => { tip.hidden = true; hovered = -1; });
  element.addEventListener("keydown", keys);
  new ResizeObserver(resize).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", styled);
  on("points", () => { points.set({ x: model.x, y: model.y }); spatial = new Spatial(model.x, model.y); styled(); });
  on("labels suggestions visible selection", styled);
  on("focus list", redraw);
  color = new Uint8Array(4 * model.info.count); look = new Uint8Array(model.info.count);
  points.set({ x: model.x, y: model.y }); spatial = new Spatial(model.x, model.y);
  resize();
}

export const placeOf = (id) => camera.toScreen(model.x[id], model.y[id]);

function setMode(name) {
  mode = name;
  for (const one of ["pan", "lasso", "box"]) $(`mode-${one}`).setAttribute("aria-pressed", one === name);
  element.classList.toggle("selecting", name !== "pan");
}

function styled() { restyle = true; redraw(); }

export function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function resize() {
  const ratio = devicePixelRatio || 1, { clientWidth: width, clientHeight: height } = element;
  if (!width || !height) return;
  for (const canvas of [$("dots"), $("marks")]) { canvas.width = width * ratio; canvas.height = height * ratio; }
  camera.resize(width, height);
  draw(); // at once: a canvas of a new size is empty
}

function draw() {
  const began = performance.now();
  if (restyle) { paint(color, look); points.set({ color, look }); restyle = false; element.dataset.points = model.shown; element.dataset.selected = model.chosen; }
  const zoom = camera.scale / camera.unit, base = model.info.count > 200_000 ? 2 : model.info.count > 20_000 ? 3 : model.info.count > 3000 ? 5 : model.info.count > 500 ? 8 : 11;
  points.draw(camera, Math.min(16, base * zoom ** 0.4), ink());
  drawMarks();
  times.frame = performance.now() - began;
}

function ink() { return (getComputedStyle(document.body).color.match(/\d+/g) ?? [0, 0, 0]).map(Number); }

function drawMarks() {
  const ratio = devicePixelRatio || 1, dark = `rgb(${ink()})`, accent = getComputedStyle(document.body).getPropertyValue("--accent");
  marks.setTransform(ratio, 0, 0, ratio, 0, 0);
  marks.clearRect(0, 0, camera.width, camera.height);
  drawThumbs();
  marks.lineWidth = 2; marks.strokeStyle = accent;
  for (const id of model.list.slice(0, MOST_MARKS)) if (model.visible[id] && !model.selected[id]) ring(id, 7); // a selected point stands out already
  if (model.focus >= 0) {
    marks.strokeStyle = dark; marks.lineWidth = 3; ring(model.focus, 11);
    marks.strokeStyle = accent; marks.lineWidth = 2; ring(model.focus, 14);
  }
  if (path) {
    marks.strokeStyle = dark; marks.lineWidth = 1.5; marks.setLineDash([5, 4]);
    marks.beginPath(); path.forEach(([x, y], place) => (place ? marks.lineTo(x, y) : marks.moveTo(x, y))); marks.closePath();
    marks.stroke(); marks.setLineDash([]);
    marks.fillStyle = accent; marks.globalAlpha = 0.12; marks.fill(); marks.globalAlpha = 1;
  }
}

function ring(id, radius) {
  const [x, y] = placeOf(id);
  marks.beginPath(); marks.arc(x, y, radius, 0, 2 * Math.PI); marks.stroke();
}

// Images instead of dots, where few enough are in view; of those that would overlap, the first is drawn.
function drawThumbs() {
  const [left, top] = camera.toMap(0, 0), [right, bottom] = camera.toMap(camera.width, camera.height), inView = [];
  if (model.shown * Math.min(1, right - left) * Math.min(1, bottom - top) > 8 * MOST_THUMBS) { element.dataset.thumbs = 0; return; }
  spatial.eachIn(left, top, right, bottom, (id) => { if (model.visible[id] && inView.length <= 6 * MOST_THUMBS) inView.push(id); });
  element.dataset.thumbs = 0;
  if (inView.length > 6 * MOST_THUMBS || (inView.length > MOST_THUMBS && camera.scale < 2 * camera.unit) || camera.scale < 1.5 * camera.unit) return;
  const taken = new Set();
  let drawn = 0;
  for (const id of inView) {
    const [x, y] = placeOf(id), cell = `${Math.round(x / THUMB)} ${Math.round(y / THUMB)}`;
    if (taken.has(cell) || drawn >= MOST_THUMBS) continue;
    taken.add(cell);
    const image = drawable(id, redraw);
    if (!image) continue;
    drawn++;
    const name = labelOf(id) ?? suggestionOf(id), side = THUMB - 6;
    marks.drawImage(image, x - side / 2, y - side / 2, side, side);
    marks.lineWidth = model.selected[id] ? 4 : 2; marks.strokeStyle = model.selected[id] ? `rgb(${ink()})` : name ? looksOf(name).color : "#8888";
    marks.strokeRect(x - side / 2, y - side / 2, side, side);
    if (name) {
      marks.font = "13px sans-serif"; marks.fillStyle = "#fffd"; marks.fillRect(x - side / 2, y - side / 2, 15, 15);
      marks.fillStyle = looksOf(name).color; marks.fillText(looksOf(name).glyph, x - side / 2 + 1, y - side / 2 + 12);
    }
  }
  element.dataset.thumbs = drawn;
}

function at(event) {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function press(event) {
  if (event.button !== 0 && event.pointerType === "mouse") return;
  element.setPointerCapture(event.pointerId);
  held.set(event.pointerId, at(event));
  tip.hidden = true; moved = false;
  if (held.size === 2) { path = null; pinch = spread(); } else if (mode !== "pan" || event.shiftKey || event.altKey) path = [at(event)];
}

const spread = () => { const [a, b] = [...held.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };

function drag(event) {
  const before = held.get(event.pointerId), now = at(event);
  if (!moved && Math.hypot(now[0] - before[0], now[1] - before[1]) < CLICK) return;
  moved = true;
  held.set(event.pointerId, now);
  if (held.size === 2) {
    const [a, b] = [...held.values()], far = spread();
    camera.zoom(far / (pinch || far), (a[0] + b[0]) / 2, (a[1] + b[1]) / 2); pinch = far;
  } else if (path && mode === "box") {
    const [x, y] = path[0];
    path = [[x, y], [now[0], y], now, [x, now[1]]];
  } else if (path) path.push(now);
  else camera.move(now[0] - before[0], now[1] - before[1]);
  redraw();
}

function release(event, openNeighbors) {
  if (!held.delete(event.pointerId)) return;
  const drawn = path, how = event.shiftKey ? "add" : event.altKey ? "subtract" : $("combine").value;
  path = null;
  if (drawn && moved && drawn.length > 2) choose(drawn, how);
  else if (!moved) {
    const id = pick(...at(event));
    if (id >= 0 && (event.shiftKey || event.ctrlKey || event.metaKey)) toggle(id);
    else if (id >= 0) { focus(id); openNeighbors(id); }
  }
  redraw();
}

// Drops the lasso or box that is being drawn; says whether there was one.
export function dropPath() {
  if (!path) return false;
  held.clear(); path = null;
  redraw();
  return true;
}

function choose(drawn, how) {
  const began = performance.now();
  const ids = spatial.inside(drawn.map(([x, y]) => camera.toMap(x, y))).filter((id) => model.visible[id]);
  select(ids, how);
  times.lasso = performance.now() - began;
  say(`${model.chosen.toLocaleString()} image${model.chosen === 1 ? "" : "s"} selected.`);
  document.dispatchEvent(new Event("lassoed"));
}

function pick(sx, sy) {
  const [x, y] = camera.toMap(sx, sy);
  return spatial.nearest(x, y, REACH / camera.scale, (id) => model.visible[id]);
}

async function hover(event) {
  if (event.pointerType !== "mouse") return;
  const [sx, sy] = at(event), id = pick(sx, sy);
  if (id < 0) { tip.hidden = true; hovered = -1; return; }
  tip.style.left = `${Math.min(sx + 14, camera.width - 150)}px`; tip.style.top = `${Math.max(0, Math.min(sy + 14, camera.height - 190))}px`;
  if (id === hovered) return;
  hovered = id;
  try { await describe([id]); } catch { return; }
  if (hovered !== id) return;
  const text = document.createElement("div"), label = labelOf(id), guess = suggestionOf(id);
  text.textContent = [model.about.get(id).name, label !== null ? `label ${label}` : null, guess !== null ? `suggested ${guess}` : null].filter((word) => word !== null).join(", ");
  tip.replaceChildren(picture(id), text);
  tip.hidden = false; tip.dataset.id = id;
}

function keys(event) {
  const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  if (steps[event.key]) camera.move(...steps[event.key]);
  else if (event.key === "+" || event.key === "=") camera.zoom(1.5);
  else if (event.key === "-") camera.zoom(1 / 1.5);
  else if (event.key === "0") camera.fit();
  else return;
  event.preventDefault(); event.stopPropagation();
  redraw();
}
