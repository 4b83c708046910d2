// What the page knows: columns of all images, labels, the selection and the focus. Every part of the page reads it here,
// and hears of changes by events: points, columns, labels, suggestions, visible, selection, focus, list, state.
import { belongTo, get, getArray, post } from "./api.js";
import { placeOf } from "./palette.js";

export const model = {
  info: null, // what never changes: name, count, columns, …
  state: null, // what the server said last
  x: null, y: null, label: null, tag: null, cluster: null, suggested: null, probability: null, entropy: null, density: null, more: [],
  visible: null, shown: 0, // which images the filters let through, and how many
  selected: null, chosen: 0, // bytes, and how many are 1
  focus: -1,
  list: [], // ids of the list beside the map, which are marked on it
  about: new Map(), // id → { name, tags }, as far as it was asked for
};
const events = new EventTarget();
export const on = (names, listener) => names.split(" ").forEach((name) => events.addEventListener(name, listener));
export const emit = (name) => events.dispatchEvent(new Event(name));

export async function load() {
  const info = await get("/api/summary"), n = info.count;
  belongTo(info.start);
  Object.assign(model, { info, visible: new Uint8Array(n).fill(1), shown: n, selected: new Uint8Array(n), label: new Int32Array(n).fill(-1) });
  info.columns.forEach((column) => column.names?.forEach(placeOf)); // classes of the data get the first colours
  await Promise.all(info.columns.map(async (column, place) => {
    model.more[place] = await getArray(`/api/column/${place}`, column.names ? Int32Array : Float32Array);
  }));
  await refresh();
}

// Ask how things are, and fetch what has changed since.
let running = null, again = false;
export function refresh() {
  if (running) { again = true; return running; }
  running = (async () => {
    do { again = false; await bring(); } while (again);
  })().finally(() => { running = null; });
  return running;
}

async function bring() {
  const before = model.state, state = await get("/api/state");
  const changed = (part) => JSON.stringify(before?.[part]) !== JSON.stringify(state[part]);
  const fresh = { state }; // put in place all at once: whoever draws meanwhile sees what belongs together
  const network = (one) => one?.map.version.split("/")[0];
  if (before?.map.version !== state.map.version) {
    const points = await getArray("/api/points", Float32Array), n = model.info.count;
    fresh.x = points.subarray(0, n); fresh.y = points.subarray(n);
    if (network(before) !== network(state)) { fresh.cluster = await getArray("/api/column/cluster", Int32Array); fresh.density = null; }
  }
  if (before?.version !== state.version) {
    [fresh.label, fresh.tag] = await Promise.all(["label", "tag"].map((name) => getArray(`/api/column/${name}`, Int32Array)));
  }
  if (before?.suggestions?.version !== state.suggestions?.version) {
    [fresh.suggested, fresh.probability, fresh.entropy] = state.suggestions === null ? [null, null, null] : await Promise.all(
      [["suggested", Int32Array], ["probability", Float32Array], ["entropy", Float32Array]].map(([name, Type]) => getArray(`/api/column/${name}`, Type)));
  }
  state.words.forEach(placeOf); state.suggestions?.classes.forEach(placeOf);
  Object.assign(model, fresh);
  if (changed("tags") || before?.version !== state.version) model.about.clear();
  if (changed("map")) emit("points");
  if (before?.version !== state.version) emit("labels");
  if (before?.suggestions?.version !== state.suggestions?.version) emit("suggestions");
  if (JSON.stringify(before) !== JSON.stringify(state)) emit("state"); // nothing is drawn anew for nothing
}

export const labelOf = (id) => (model.label[id] >= 0 ? model.state.words[model.label[id]] ?? null : null);
export const suggestionOf = (id) => (model.suggested && model.suggested[id] >= 0 ? model.state.suggestions.classes[model.suggested[id]] ?? null : null);

export function select(ids, how = "new") {
  if (how === "new") { model.selected.fill(0); model.chosen = 0; }
  const value = how === "subtract" ? 0 : 1;
  for (const id of ids) { model.chosen += value - model.selected[id]; model.selected[id] = value; }
  emit("selection");
  tell();
}

export function toggle(id) { select([id], model.selected[id] ? "subtract" : "add"); }

export function selection() {
  const ids = [];
  for (let id = 0; id < model.selected.length && ids.length < model.chosen; id++) if (model.selected[id]) ids.push(id);
  return ids;
}

let waiting;
function tell() { // Python's handle may ask for the selection
  clearTimeout(waiting);
  waiting = setTimeout(() => post("/api/select", { ids: selection() }).catch(() => {}), 300);
}

export function focus(id) { model.focus = id; emit("focus"); }

// The images that a label is for: the selection, if the image in focus belongs to it or there is none; else that image.
export function targets() {
  if (model.chosen && (model.focus < 0 || model.selected[model.focus])) return selection();
  return model.focus >= 0 ? [model.focus] : [];
}

export async function describe(ids) {
  const unknown = ids.filter((id) => !model.about.has(id)).slice(0, 500);
  if (unknown.length) (await post("/api/describe", { ids: unknown })).forEach((about, place) => model.about.set(unknown[place], about));
}
