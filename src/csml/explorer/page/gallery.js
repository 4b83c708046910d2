// The list of images beside the map. Only the tiles in view exist, however long the list is, and it is one stop of Tab.
import { badge } from "./coloring.js";
import { emit, focus, labelOf, model, on, select, suggestionOf, toggle } from "./model.js";
import { picture } from "./thumbs.js";

const CAPTION = 34, GAP = 4, AROUND = 2;
const element = document.getElementById("gallery"), sizer = document.createElement("div"), empty = document.createElement("p");
let ids = [], notes = [], side = 96, columns = 1, tiles = new Map(), place = 0;

export function startGallery() {
  empty.className = "empty quiet";
  element.append(sizer, empty);
  element.addEventListener("scroll", () => render());
  new ResizeObserver(() => render(true)).observe(element);
  element.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const at = Number(tile.dataset.place);
    if (event.shiftKey) select(ids.slice(Math.min(place, at), Math.max(place, at) + 1), "add");
    else if (event.ctrlKey || event.metaKey) toggle(ids[at]);
    go(at);
  });
  on("labels suggestions selection focus", () => render(true));
}

export function setSize(pixels) { side = pixels; render(true); reveal(); }

// Show a list; `why` has a note for each image, or is null. Focuses the image at `start`, unless it is −1.
// `none`: what an empty list says.
export function show(wanted, why, start = 0, none = "") {
  empty.textContent = wanted.length ? "" : none;
  ids = wanted; notes = why; place = Math.max(0, Math.min(start, ids.length - 1));
  model.list = ids; emit("list");
  element.scrollTop = 0;
  render(true);
  if (start >= 0 && ids.length) go(place);
}

export const listed = () => ids;
export const position = () => place;

export function go(to) {
  if (!ids.length) return;
  place = Math.max(0, Math.min(ids.length - 1, to));
  focus(ids[place]);
  reveal();
}

export function step(key) {
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -ids.length, End: ids.length, PageUp: -3 * columns, PageDown: 3 * columns }[key];
  if (by !== undefined) go(place + by);
  return by !== undefined;
}

function reveal() {
  const height = side + CAPTION + GAP, top = Math.floor(place / columns) * height;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + height > element.scrollTop + element.clientHeight) element.scrollTop = top + height - element.clientHeight;
  element.setAttribute("aria-activedescendant", `tile-${place}`);
}

function render(anew = false) {
  const width = side + 8, height = side + CAPTION + GAP;
  columns = Math.max(1, Math.floor(element.clientWidth / width));
  sizer.style.height = `${Math.ceil(ids.length / columns) * height}px`;
  const first = Math.max(0, Math.floor(element.scrollTop / height) - AROUND) * columns;
  const last = Math.min(ids.length, (Math.ceil((element.scrollTop + element.clientHeight) / height) + AROUND) * columns);
  for (const [at, tile] of tiles) if (at < first || at >= last || tile.dataset.id !== String(ids[at])) { tile.remove(); tiles.delete(at); }
  for (let at = first; at < last; at++) {
    let tile = tiles.get(at);
    if (!tile) { tile = make(at); tiles.set(at, tile); element.append(tile); caption(tile, at); } else if (anew) caption(tile, at);
    tile.style.left = `${(at % columns) * width}px`; tile.style.top = `${Math.floor(at / columns) * height}px`; tile.style.width = `${width}px`;
  }
  element.dataset.count = ids.length;
}

function make(at) {
  const tile = document.createElement("div");
  tile.className = "tile"; tile.id = `tile-${at}`; tile.setAttribute("role", "option");
  tile.dataset.place = at; tile.dataset.id = ids[at]; tile.style.height = `${side + CAPTION}px`;
  tile.append(picture(ids[at], side), document.createElement("div"), document.createElement("div"));
  return tile;
}

function caption(tile, at) {
  const id = ids[at], label = labelOf(id), guess = suggestionOf(id), [image, first, second] = tile.children;
  tile.classList.toggle("focus", id === model.focus);
  tile.setAttribute("aria-selected", model.selected[id] === 1);
  if (image.width !== side && image.tagName === "IMG") { image.width = image.height = side; }
  image.style.width = image.style.height = `${side}px`; tile.style.height = `${side + CAPTION}px`;
  const word = label ?? guess;
  first.className = label === null ? "guess" : "given";
  first.replaceChildren(...(word === null ? [] : [badge(word), part("name", label === null ? `${word}?` : word), ...(label === null ? [part("share", `${Math.round(100 * model.probability[id])} %`)] : [])]));
  second.textContent = (notes?.[at] ?? "").replace(/ images?$/, ""); // the title has it whole
  tile.title = [word, notes?.[at]].filter(Boolean).join(", ");
  tile.setAttribute("aria-label", `image ${id + 1}${label !== null ? `, label ${label}` : guess !== null ? `, suggested ${guess}` : ""}`);
}

function part(name, text) {
  const element = document.createElement("span");
  element.className = name; element.textContent = text;
  return element;
}
