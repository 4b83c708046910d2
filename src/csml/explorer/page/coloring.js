// Columns by which the map is coloured, the legend, and the filters.
import { emit, labelOf, model, on, suggestionOf } from "./model.js";
import { DARK, RAMP_CSS, bytesOf, looksOf, rampBytes } from "./palette.js";

const $ = (id) => document.getElementById(id);
let only = null; // the name that the legend shows alone: its code changes when names come and go
let least = null; // the smallest number that is shown
let touched = false; // the user has chosen a column

// [value, title, codes or numbers, names of codes or null]
function columns() {
  const { info, state } = model, found = [["label", "my label", model.label, state.words]];
  if (model.suggested) {
    found.push(["suggested", "suggestion", model.suggested, state.suggestions.classes], ["entropy", "uncertainty", model.entropy, null]);
  }
  if (model.cluster) found.push(["cluster", "cluster", model.cluster, Array.from({ length: 12 }, (_, c) => `cluster ${c + 1}`)]);
  if (Object.keys(state.tags).length) found.push(["tag", "tag", model.tag, Object.keys(state.tags).sort()]);
  info.columns.forEach((column, place) => found.push([`more-${place}`, column.title, model.more[place], column.names]));
  return found;
}

function current() {
  const all = columns();
  return all.find((column) => column[0] === $("by").value) ?? all[0];
}

export function fillColumns() {
  const all = columns(), before = $("by").value;
  $("by").replaceChildren(...all.map(([value, title]) => new Option(title, value)));
  let wanted = before;
  if (!touched) {
    const named = all.find((column) => column[1] === "class");
    wanted = Object.keys(model.state.counts).length ? "label" : named ? named[0] : "cluster";
  }
  $("by").value = all.some((column) => column[0] === wanted) ? wanted : "label";
  if ($("by").value !== before) only = least = null;
  $("disagree-filter").hidden = !model.suggested;
}

// What image `id` ought to be, as far as anybody said: my label, else the class of the data.
function said(id) {
  const place = model.info.columns.findIndex((column) => column.title === "class");
  return labelOf(id) ?? (place >= 0 && model.more[place][id] >= 0 ? model.info.columns[place].names[model.more[place][id]] : null);
}

export function filter() {
  const [, , values, names] = current(), unlabelled = $("only-unlabelled").checked, disagree = $("disagree").checked && model.suggested;
  let code = only === null ? -1 : names.indexOf(only), shown = 0;
  if (code < 0 || !values.includes(code)) only = code = null; // no image has it any more
  for (let id = 0; id < model.visible.length; id++) {
    let show = !(unlabelled && model.label[id] >= 0) && (code === null || values[id] === code) && (least === null || values[id] >= least);
    if (show && disagree) { const word = said(id), guess = suggestionOf(id); show = word !== null && guess !== null && word !== guess; }
    model.visible[id] = show ? 1 : 0;
    shown += model.visible[id];
  }
  model.shown = shown;
  $("show-all").disabled = shown === model.visible.length;
  $("shown").textContent = shown === model.visible.length ? "" : `${shown.toLocaleString()} of ${model.visible.length.toLocaleString()} shown`;
  emit("visible");
}

// Bytes for every point: color (4 each) and look (shape + 8 if selected + 16 if labelled).
export function paint(color, look) {
  const [, , values, names] = current(), grey = bytesOf(getComputedStyle(document.body).getPropertyValue("--grey").trim());
  const looks = names?.map((name) => ({ bytes: bytesOf(looksOf(name).color), shape: looksOf(name).shape }));
  const [low, high] = names ? [0, 1] : range(values), faint = model.chosen ? 90 : 215;
  for (let id = 0; id < values.length; id++) {
    const value = values[id], known = names ? value >= 0 && value < names.length : value === value && !(value < 0 && low >= 0);
    const bytes = !known ? grey : names ? looks[value].bytes : rampBytes((value - low) / (high - low || 1));
    color[4 * id] = bytes[0]; color[4 * id + 1] = bytes[1]; color[4 * id + 2] = bytes[2];
    color[4 * id + 3] = model.visible[id] ? (model.selected[id] ? 255 : known || !names ? faint : faint * 0.5) : 0;
    look[id] = (known && names ? looks[value].shape : 0) + (model.selected[id] ? 8 : 0) + (model.label[id] >= 0 ? 16 : 0);
  }
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value === value && value >= 0) { if (value < low) low = value; if (value > high) high = value; }
  if (low === Infinity) for (const value of values) if (value === value) { if (value < low) low = value; if (value > high) high = value; }
  return low === Infinity ? [0, 1] : [low, high];
}

// The glyph and colour of a name.
export function badge(name) {
  const { color, glyph } = looksOf(name), element = document.createElement("span");
  element.className = "glyph"; element.style.color = color; element.textContent = glyph;
  return element;
}

// A name that may be long: cut off where it would take too much room.
export function clipped(name) {
  const element = document.createElement("span");
  element.className = "clipped"; element.textContent = name;
  return element;
}

export function drawLegend() {
  const [, , values, names] = current();
  if (!names) { $("legend").replaceChildren(...ramp(values)); return; }
  const counts = new Uint32Array(names.length + 1);
  for (const value of values) counts[value < 0 || value > names.length ? names.length : value]++;
  const entries = names.map((name, code) => [code, name, counts[code]]).filter(([, , count]) => count);
  $("legend").replaceChildren(...entries.slice(0, 200).map(([code, name, count]) => {
    const button = document.createElement("button");
    button.type = "button"; button.append(badge(name), " ", clipped(name), ` ${count.toLocaleString()}`); button.title = `${name}: press to see these alone`;
    button.setAttribute("aria-pressed", only === name);
    button.addEventListener("click", () => { only = only === name ? null : name; filter(); drawLegend(); });
    return button;
  }), counts[names.length] ? `${counts[names.length].toLocaleString()} without` : "");
}

function ramp(values) {
  const [low, high] = range(values), bar = document.createElement("span"), slider = document.createElement("input"), text = document.createElement("span");
  bar.className = "ramp"; bar.style.background = RAMP_CSS;
  Object.assign(slider, { type: "range", min: low, max: high, step: (high - low) / 100 || 0.01, value: least ?? low, title: "Show only images with at least this value" });
  slider.id = "least"; slider.setAttribute("aria-label", slider.title);
  const say = () => { text.textContent = `shown from ${Number(slider.value).toFixed(2)}`; };
  slider.addEventListener("input", () => { least = Number(slider.value) > low ? Number(slider.value) : null; say(); filter(); });
  say();
  return [low.toFixed(2), bar, high.toFixed(2), slider, text];
}

export function startColoring() {
  $("by").addEventListener("change", () => { touched = true; only = least = null; filter(); drawLegend(); });
  for (const id of ["only-unlabelled", "disagree"]) $(id).addEventListener("change", filter);
  $("show-all").addEventListener("click", () => { only = least = null; $("only-unlabelled").checked = $("disagree").checked = false; filter(); drawLegend(); });
  DARK.addEventListener("change", () => emit("labels")); // all that has a colour is drawn anew
  on("labels suggestions points", () => { fillColumns(); filter(); drawLegend(); });
}
