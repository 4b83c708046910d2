// The lists beside the map: what to label next, the selection, neighbours, search hits, what may not belong in the data.
import { get, getArray, post, upload } from "./api.js";
import { attempt, say } from "./dialogs.js";
import { add, chips, examples, forget, upload as asExample, wanted } from "./examples.js";
import { go, listed, position, setSize, show } from "./gallery.js";
import { accept, images, pending, tag } from "./labelling.js";
import { describe, focus, labelOf, model, on, refresh, select, selection } from "./model.js";

const $ = (id) => document.getElementById(id);
const QUEUE = 12, PATIENCE = 700;
const TABS = { queue: "Label next", selection: "Selection", neighbors: "Neighbours", search: "Search", clean: "Clean" };
const CLEAN = { duplicates: "near-duplicates", outliers: "outliers", wrong: "likely wrong labels", dark: "dark images", flat: "images without contrast", blurred: "blurred images", tiny: "tiny images", shape: "oddly shaped images", unreadable: "unreadable images" };
const UNSELECTED = "Nothing is selected. Draw a lasso or a box on the map, or press Space at images of a list.";
const TAGS = { duplicates: "duplicate", outliers: "outlier", wrong: "wrong label" };
let tab = "queue", found = { ids: [], notes: null, similarities: null }, asked = 0, named = ""; // named: the last search by name, if that was the last

export function startLists() {
  $("tabs").replaceChildren(...Object.entries(TABS).map(([name, title]) => {
    const button = document.createElement("button");
    button.type = "button"; button.id = `tab-${name}`; button.textContent = title; button.setAttribute("role", "tab");
    button.addEventListener("click", () => goTo(name));
    return button;
  }));
  $("sort").addEventListener("change", () => attempt(sorted));
  $("size").addEventListener("input", () => setSize(Number($("size").value)));
  $("select-list").addEventListener("click", () => select(listed(), "add"));
  $("clear").addEventListener("click", () => { select([], "new"); say("Nothing is selected now."); });
  $("select-shown").addEventListener("click", () => { select(Array.from(model.visible.keys()).filter((id) => model.visible[id])); open("selection"); note(); say(`${images(model.chosen)} selected.`); });
  addEventListener("popstate", () => attempt(openFromAddress));
  $("remove").addEventListener("click", remove);
  $("accept-all").addEventListener("click", () => accept(listed().filter((id) => labelOf(id) === null)));
  on("selection", () => { if (tab === "selection") list(selection(), null, null, -1, UNSELECTED); marked(); });
  document.addEventListener("lassoed", () => { open("selection"); note(); });
  marked();
}

function marked() {
  for (const name of Object.keys(TABS)) $(`tab-${name}`).setAttribute("aria-selected", name === tab);
  $("tab-selection").textContent = `Selection ${model.chosen.toLocaleString()}`;
}

// The list is part of the address, so that a reload shows it again and the browser's Back leads to the list before.
function note() {
  const here = tab === "neighbors" && model.focus >= 0 ? `#neighbors-${model.focus}` : `#${tab}`;
  if (here !== location.hash) history.pushState(null, "", here);
}

export async function openFromAddress() {
  const [name, id] = location.hash.slice(1).split("-"), known = name in TABS ? name : "queue";
  if (known === "neighbors" && Number(id) < model.info.count) focus(Number(id));
  await open(known);
}

// Open a list so that Back leads to the one before.
export function goTo(name) {
  const opened = open(name);
  note();
  return opened;
}

export async function open(name) {
  tab = name;
  marked();
  $("list-tools").replaceChildren(...tools());
  if (name === "selection") list(selection(), null, null, model.selected[model.focus] ? -1 : 0, UNSELECTED); // labels go to what is in focus
  else await attempt({ queue: refillQueue, neighbors: () => neighborsOf(model.focus), search: () => (named ? byName(named) : byExamples()), clean }[name]);
}

export const isOpen = (name) => tab === name;

async function list(ids, notes, similarities, start = 0, none = "") {
  found = { ids, notes, similarities, none };
  $("list-title").textContent = images(ids.length);
  for (const [by, has] of [["uncertainty", model.entropy], ["similarity", similarities]]) $("sort").querySelector(`[value=${by}]`).disabled = !has;
  if ($("sort").selectedOptions[0]?.disabled) $("sort").value = "";
  await sorted(start);
}

async function sorted(start = 0) {
  const by = $("sort").value, order = found.ids.map((_, place) => place);
  let value = null;
  if (by === "uncertainty" && model.entropy) value = (place) => -model.entropy[found.ids[place]];
  if (by === "similarity" && found.similarities) value = (place) => -found.similarities[place];
  if (by === "density") {
    model.density ??= await getArray("/api/column/density", Float32Array);
    if (!model.density) { say("The density is being computed …"); setTimeout(() => { if ($("sort").value === "density") attempt(sorted); }, PATIENCE); }
    else value = (place) => -model.density[found.ids[place]];
  }
  if (value) order.sort((a, b) => value(a) - value(b));
  show(order.map((place) => found.ids[place]), found.notes ? order.map((place) => found.notes[place]) : null, start, found.none);
}

function remove() {
  const gone = new Set(model.chosen && model.selected[model.focus] ? selection() : [model.focus]), at = position();
  if (tab === "selection") { select([...gone], "subtract"); return; }
  const kept = found.ids.map((_, place) => place).filter((place) => !gone.has(found.ids[place])), pickFrom = (values) => values && kept.map((place) => values[place]);
  list(pickFrom(found.ids), pickFrom(found.notes), pickFrom(found.similarities), at);
}
export { remove };

// The queue: labelled images stay in view until all are done, then the next ones are fetched.
// told: what was said last may go; after labelling it is how many were labelled.
export async function refillQueue(told = true) {
  const mine = ++asked;
  $("list-title").textContent = "choosing …";
  try {
    const { ids, notes } = await get(`/api/queue?n=${QUEUE}&by=${$("queue-by")?.value ?? "both"}`);
    if (tab !== "queue" || mine !== asked) return;
    if (told) say(ids.length ? "Label what the list proposes, or lasso a group on the map." : "Nothing is left to label.");
    await list(ids, notes, null, 0, "Every image that can be read has a label.");
  } catch (error) { if (mine === asked) $("list-title").textContent = ""; throw error; }
}

const isUnlabelled = (id) => labelOf(id) === null && !pending.has(id);

// While a label is on its way: the next image of the queue, so that the next key is not for this one again.
export function toNext() {
  if (tab !== "queue") return;
  const ids = listed(), next = ids.findIndex((id, place) => place >= position() && isUnlabelled(id)), any = ids.findIndex(isUnlabelled);
  if (next >= 0) go(next); else if (any >= 0) go(any);
}

export async function afterLabelling(ahead) {
  if (tab !== "queue" || pending.size) return;
  if (!listed().some(isUnlabelled)) await attempt(() => refillQueue(false)); else if (!ahead) toNext();
}

export async function neighbors(id) {
  if (tab !== "neighbors") { tab = "neighbors"; marked(); $("list-tools").replaceChildren(...tools()); }
  note();
  await neighborsOf(id);
}

async function neighborsOf(id) {
  if (id < 0) { list([], null, null, -1, "Click an image to see its neighbours."); return; }
  const mine = ++asked;
  await attempt(async () => {
    const { ids, similarities } = await post("/api/similar", { positive: [id] });
    if (tab !== "neighbors" || mine !== asked) return;
    await list(ids, similarities.map((value) => `similarity ${value.toFixed(3)}`), similarities, -1, "It cannot be read, so it has no neighbours.");
    await describe([id]);
    say(`The images most like ${model.about.get(id).name}.`);
    $("list-title").textContent = `nearest to ${model.about.get(id).name}`;
  });
}

export function addExample(id, kind) {
  add(id, kind);
  named = "";
  open("search"); note();
}

async function byExamples() {
  const some = wanted(), { negative } = examples();
  if (!some) { list([], null, null, -1, `Drop a picture anywhere on the page, write part of a file name, or press “+ like this” at images.${negative.length ? " What is unlike needs an image that is like, too." : ""}`); return; }
  const mine = ++asked;
  await attempt(async () => {
    const { ids, similarities } = await post("/api/similar", examples());
    if (tab !== "search" || mine !== asked) return;
    await list(ids, similarities.map((value) => `similarity ${value.toFixed(3)}`), similarities);
    say(`The images most like ${some} example${some === 1 ? "" : "s"}${negative.length ? `, and unlike ${negative.length}` : ""}.`);
  });
}

export async function bySearchedPicture(file) {
  say(`Searching images similar to ${file.name} …`);
  await attempt(async () => {
    const answer = await upload("/api/search", file);
    asExample(answer.upload, file); named = ""; asked++;
    tab = "search"; marked(); note(); $("list-tools").replaceChildren(...tools());
    await list(answer.ids, answer.similarities.map((value) => `similarity ${value.toFixed(3)}`), answer.similarities);
    say(`The images most like ${file.name}.`);
  });
}

async function byName(text) {
  const mine = ++asked;
  named = text;
  await attempt(async () => {
    const { ids } = await get(`/api/find?text=${encodeURIComponent(text)}`);
    if (tab !== "search" || mine !== asked) return;
    await list(ids, null, null, 0, `No file name contains “${text}”.`);
    say(ids.length ? `${ids.length.toLocaleString()} file name${ids.length === 1 ? " contains" : "s contain"} “${text}”.` : `No file name contains “${text}”.`);
  });
}

async function clean() {
  const kind = $("clean-kind").value, mine = ++asked;
  say(`Looking for ${CLEAN[kind]} …`);
  list([], null, null, -1, `Looking for ${CLEAN[kind]} …`); // not the list before under this heading
  $("tag-found").disabled = true;
  const wait = async () => {
    const answer = await get(`/api/clean/${kind}?similarity=${$("alike")?.value ?? 0.95}`);
    if (tab !== "clean" || mine !== asked) return;
    if (answer.problem) throw new Error(answer.problem);
    if (!answer.found) { $("list-title").textContent = `looking … ${Math.round(100 * answer.done)} %`; setTimeout(() => attempt(wait), PATIENCE); return; }
    const { ids, notes, extra, suggested } = answer.found;
    await list(ids, notes, null, ids.length ? 0 : -1, `There are no ${CLEAN[kind]}.`);
    say(!ids.length ? `There are no ${CLEAN[kind]}.` : kind === "duplicates" ? `${images(ids.length)} in ${ids.length - extra.length} groups of ${CLEAN[kind]}; ${extra.length} of them are extra.` : `${images(ids.length)}: ${CLEAN[kind]}.`);
    $("tag-found").onclick = () => tag(kind === "duplicates" ? extra : listed(), TAGS[kind] ?? kind);
    $("tag-found").textContent = kind === "duplicates" ? `Tag ${extra.length} extra “duplicate”` : `Tag all “${TAGS[kind] ?? kind}”`;
    $("tag-found").disabled = !ids.length;
    $("clean-note").textContent = Object.keys(suggested).length ? "The note says which label fits better." : "";
  };
  await wait();
}

function field(tagName, properties, ...children) {
  const element = Object.assign(document.createElement(tagName), properties);
  element.append(...children);
  return element;
}

// The controls of a tab.
function tools() {
  if (tab === "queue") {
    const by = field("select", { id: "queue-by", onchange: () => attempt(refillQueue) }, ...[["both", "coverage and uncertainty"], ["coverage", "coverage"], ["uncertainty", "uncertainty"]].map(([value, text]) => new Option(text, value)));
    const votes = field("button", { type: "button", id: "votes", onclick: async () => { await attempt(async () => { await post("/api/suggest", { votes: !model.state.suggestions?.votes }); await refresh(); await refillQueue(); }); } }, wayOf());
    votes.hidden = !model.state.suggestions?.classifier;
    const meaning = "Stands for 9 images: 9 images are more like it than like any that is labelled or listed before it.";
    return [field("label", { title: meaning }, "By ", by), field("button", { type: "button", id: "refill", onclick: () => attempt(refillQueue) }, "Choose anew"), votes, field("span", { className: "quiet", id: "source" }, model.state.suggestions ? `Suggested by ${model.state.suggestions.source}.` : "")];
  }
  if (tab === "search") {
    const text = field("input", { id: "find", maxLength: 500, placeholder: "part of a file name", value: named });
    const form = field("form", { id: "find-form", onsubmit: (event) => { event.preventDefault(); if (text.value.trim()) byName(text.value.trim()); } }, text, field("button", {}, "Find"));
    const file = field("input", { type: "file", accept: "image/*", id: "file", onchange: () => { if (file.files.length) bySearchedPicture(file.files[0]); } });
    const again = () => { named = ""; open("search"); }, shown = chips(again);
    const words = `${wanted()} like, ${examples().negative.length} unlike`;
    const buttons = shown.length ? [field("span", { className: "quiet" }, words), ...shown, field("button", { type: "button", onclick: () => { forget(); again(); } }, "Forget examples")] : [];
    return [form, field("label", { className: "quiet" }, "or a picture ", file), ...buttons];
  }
  if (tab === "clean") {
    const before = $("clean-kind")?.value ?? "duplicates";
    const kind = field("select", { id: "clean-kind", onchange: () => open("clean") }, ...Object.entries(CLEAN).map(([value, title]) => new Option(title, value)));
    kind.value = before;
    const alike = field("input", { type: "range", id: "alike", min: 0.8, max: 1, step: 0.005, value: $("alike")?.value ?? 0.95, title: "Least similarity of near-duplicates", oninput: () => { least.value = alike.value; }, onchange: () => attempt(clean) });
    const least = field("output", {}, alike.value);
    return [field("label", {}, "Show ", kind), ...(before === "duplicates" ? [field("label", {}, "similarity from ", alike, least)] : []), field("button", { type: "button", id: "tag-found", disabled: true }, "Tag all"), field("span", { className: "quiet", id: "clean-note" })];
  }
  return [];
}

// The button that changes who suggests.
const wayOf = () => (model.state.suggestions?.votes ? "Suggest by the classifier" : "Suggest by votes of my labels");

on("state suggestions", () => {
  if (tab !== "queue" || !$("source")) return;
  $("source").textContent = model.state.suggestions ? `Suggested by ${model.state.suggestions.source}.` : "";
  $("votes").hidden = !model.state.suggestions?.classifier; $("votes").textContent = wayOf();
});
