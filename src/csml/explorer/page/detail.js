// The image in focus: large, with all that is known of it.
import { badge } from "./coloring.js";
import { attempt } from "./dialogs.js";
import { addExample, neighbors } from "./lists.js";
import { describe, labelOf, model, on, suggestionOf } from "./model.js";
import { picture } from "./thumbs.js";
import { enlarge } from "./viewer.js";

const element = document.getElementById("detail");

export function startDetail() { on("focus labels suggestions", () => attempt(draw)); }

async function draw() {
  const id = model.focus;
  if (id < 0) { element.replaceChildren("Click an image."); delete element.dataset.id; return; }
  if (element.dataset.id !== String(id)) element.replaceChildren(picture(id), element.querySelector(".words") ?? document.createElement("div")); // the old words until the new ones are there: nothing jumps
  element.dataset.id = id;
  await describe([id]);
  if (model.focus !== id) return;
  const { name, tags } = model.about.get(id), words = document.createElement("div"), label = labelOf(id), guess = suggestionOf(id);
  words.className = "words";
  words.append(line(name));
  if (label !== null) words.append(line("label ", badge(label), label));
  if (guess !== null) words.append(line("suggested ", badge(guess), `${guess}, ${Math.round(100 * model.probability[id])} %`));
  model.info.columns.forEach((column, place) => {
    const value = model.more[place][id], text = column.names ? column.names[value] : Number.isNaN(value) ? undefined : String(value);
    if (text !== undefined) words.append(line(`${column.title} ${text}`));
  });
  if (tags.length) words.append(line(`tags ${tags.join(", ")}`));
  // By the focus of the click: these buttons stay while another image is in focus and its words are not there yet.
  words.append(line(button("Neighbours", () => neighbors(model.focus), "show-neighbors"), button("+ like this", () => addExample(model.focus, "positive"), "more-like"), button("− unlike this", () => addExample(model.focus, "negative"), "less-like"), button("Enlarge", enlarge, "enlarge")));
  element.lastChild.replaceWith(words);
}

function line(...parts) {
  const element = document.createElement("div");
  element.append(...parts.flatMap((part) => [part, " "])); // text, never HTML: file names may hold anything
  return element;
}

function button(text, click, id) {
  const element = Object.assign(document.createElement("button"), { type: "button", textContent: text, id });
  element.addEventListener("click", click);
  return element;
}
