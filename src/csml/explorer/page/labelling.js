// Giving labels and tags: by name, by number key, by accepting suggestions; nothing is overwritten without a word.
import { post, send } from "./api.js";
import { badge, clipped } from "./coloring.js";
import { attempt, question, say } from "./dialogs.js";
import { go, listed } from "./gallery.js";
import { focus, labelOf, model, on, refresh, select, suggestionOf, targets } from "./model.js";

const $ = (id) => document.getElementById(id);
let forward = () => {}, afterwards = () => {};
export const pending = new Set(); // ids whose label is on its way
export const images = (count) => `${count.toLocaleString()} image${count === 1 ? "" : "s"}`;

// leave(): called when a label is on its way, so that the next key is for the next image; done(ahead): when it has arrived,
// and whether leave was called
export function startLabelling(leave, done) {
  forward = leave; afterwards = done;
  $("label-form").addEventListener("submit", (event) => { event.preventDefault(); giveTyped(); });
  $("accept").addEventListener("click", acceptTargets);
  $("unlabel").addEventListener("click", () => give(Object.fromEntries(targets().filter((id) => labelOf(id) !== null).map((id) => [id, null])), "replace"));
  $("give-tag").addEventListener("click", () => tagTargets(true));
  $("take-tag").addEventListener("click", () => tagTargets(false));
  $("tag").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); tagTargets(true); } });
  $("undo").addEventListener("click", () => turn("undo"));
  $("redo").addEventListener("click", () => turn("redo"));
  on("state labels suggestions selection focus", drawBar);
}

function giveTyped() {
  const word = $("label").value.trim();
  if (!word) { say("Write a label first."); return; }
  if (!targets().length) { say("Select some images first, or click one."); return; }
  $("label").value = "";
  $("gallery").focus({ preventScroll: true }); // the next key is for the list
  attempt(() => giveNew(word));
}

// A word that differs from a known one only by case or spaces is probably a slip.
async function giveNew(word) {
  const plain = (text) => text.toLowerCase().replace(/\s+/g, " "), twin = model.state.words.includes(word) ? undefined : inUse().find((known) => plain(known) === plain(word));
  const chosen = twin === undefined ? word : await question(`There is a label “${twin}” already.`, [[twin, `Use ${twin}`], [word, `Make a new label ${word}`], ["", "Cancel"]]);
  if (chosen === null) say("Nothing was labelled."); else await giveWord(chosen);
}

export function giveWord(word) { return give(Object.fromEntries(targets().map((id) => [id, word]))); }

export function giveNumber(number) {
  const word = inUse()[number - 1];
  if (word !== undefined) giveWord(word); else say(`There is no label ${number} yet.`);
}

export function acceptTargets() {
  const ids = targets().filter((id) => suggestionOf(id) !== null);
  if (!ids.length) { say("There is no suggestion here yet: write a label."); $("label").focus(); return; }
  accept(ids);
}

export function accept(ids) {
  const pairs = ids.filter((id) => suggestionOf(id) !== null).map((id) => [id, suggestionOf(id)]);
  return give(Object.fromEntries(pairs));
}

// labels: { id: word or null }. One image may be given another label at once, which can be undone; of several it is asked.
async function give(labels, existing) {
  const ids = Object.keys(labels).map(Number);
  if (!ids.length) { say("There is nothing to label."); return; }
  await attempt(async () => {
    const words = [...new Set(Object.values(labels))];
    let how = existing ?? (ids.length === 1 ? "replace" : "ask"), answer;
    const ahead = ids.length === 1 && labels[ids[0]] !== null; // nothing to ask: go on at once
    if (ahead) { pending.add(ids[0]); select([], "new"); forward(); }
    try { answer = await send("/api/label", { labels, existing: how }); } catch (error) { if (ahead) look(ids[0]); throw error; }
    if (answer.status === 409) {
      const { others } = await answer.json(), counts = Object.entries(others), total = counts.reduce((sum, [, count]) => sum + count, 0);
      const has = total === 1 ? "has" : "have";
      how = await question(`${total.toLocaleString()} of the ${images(ids.length)} already ${has} another label than ${words.length === 1 ? `“${words[0]}”` : "the suggested one"}: ${counts.map(([word, count]) => `${word} (${count})`).join(", ")}.`,
        [...(total < ids.length ? [["keep", "Label only the others"]] : []), ["replace", `Replace ${total === 1 ? "it" : `all ${total}`}`], ["", "Cancel"]]);
      if (how === null) { say("Nothing was labelled."); return; }
      answer = await send("/api/label", { labels, existing: how });
    }
    if (!answer.ok) { if (ahead) look(ids[0]); throw new Error(await answer.text()); }
    const { changed, others } = await answer.json(), replaced = Object.entries(others).map(([word, count]) => `${count} ${word}`).join(", ");
    const word = words.length === 1 ? words[0] : "as suggested";
    if (!ahead) select([], "new");
    await refresh();
    ids.forEach((id) => pending.delete(id));
    if (!changed) say(word === null ? "Nothing changes: no label here." : `Nothing changes: labelled ${word} already.`);
    else say(word === null ? `Label taken from ${images(changed)}.` : `${images(changed)} labelled ${word}${how === "replace" && replaced ? ` (before: ${replaced})` : ""}. Ctrl-Z undoes.`);
    afterwards(ahead);
  }, () => ids.forEach((id) => pending.delete(id)));
}

export async function tag(ids, word, on = true) {
  if (!word || !ids.length) { say("Choose images and write a tag first."); return; }
  await attempt(async () => {
    const { changed } = await post("/api/tag", { ids, tag: word, on });
    await refresh();
    if (changed) say(`${images(changed)} ${on ? "tagged" : "no longer tagged"} ${word}. Ctrl-Z undoes.`);
    else say(on ? `Nothing changes: tagged ${word} already.` : `Nothing changes: no tag ${word} here.`);
  });
}

function tagTargets(on) { return tag(targets(), $("tag").value.trim(), on); }

export async function turn(which) {
  await attempt(async () => {
    const { about, id } = await post(`/api/${which}`);
    await refresh();
    if (id !== null) look(id); // the next key is for the image that it was about
    say(about === null ? `There is nothing to ${which}.` : `${which === "undo" ? "Undone" : "Done again"}: ${about}.`);
  });
}

// Back to an image, in the list if it is there.
function look(id) {
  const place = listed().indexOf(id);
  if (place >= 0) go(place); else focus(id);
}

export const inUse = () => model.state.words.filter((word) => model.state.counts[word]);

function drawBar() {
  const { state, info } = model, ids = targets(), words = inUse();
  $("words").replaceChildren(...words.map((word, place) => {
    const button = document.createElement("button"), count = state.counts[word];
    button.type = "button"; button.append(place < 9 ? `${place + 1} ` : "", badge(word), clipped(word), ` ${count}`);
    button.title = count < info.thin ? `${word}: only ${count} so far` : word;
    button.classList.toggle("few", count < info.thin);
    button.addEventListener("click", () => giveWord(word));
    return button;
  }));
  for (const [id, list] of [["known", [...new Set([...state.words, ...(state.suggestions?.classes ?? [])])]], ["tags", Object.keys(state.tags)]]) {
    if ([...$(id).children].some((option, place) => option.value !== list[place]) || $(id).childElementCount !== list.length) $(id).replaceChildren(...list.map((word) => Object.assign(document.createElement("option"), { value: word })));
  }
  const guess = ids.length === 1 ? suggestionOf(ids[0]) : null;
  $("accept").disabled = !ids.some((id) => suggestionOf(id) !== null);
  $("accept").replaceChildren("Accept", ...(guess === null ? [] : [" ", clipped(guess)])); $("accept").title = guess === null ? "Enter" : `${guess} (Enter)`;
  $("unlabel").disabled = !ids.some((id) => labelOf(id) !== null);
  $("target").textContent = ids.length === 0 ? "Click an image, or select some." : ids.length === 1 ? "This is for the image in focus." : `This is for all ${ids.length.toLocaleString()} selected images.`;
  const done = Object.values(state.counts).reduce((sum, count) => sum + count, 0), thin = words.filter((word) => state.counts[word] < info.thin);
  $("labelled").textContent = done.toLocaleString();
  $("share").value = done / info.count; $("share").title = `${((100 * done) / info.count).toFixed(1)} % of the images have a label`;
  $("estimate").textContent = state.estimate ? `estimated accuracy ${Math.round(100 * state.estimate.accuracy)} % ± ${Math.round(100 * state.estimate.error)}` : "accuracy: needs two classes with two labels each";
  $("thin").textContent = thin.length ? `few labels: ${thin.slice(0, 4).map((word) => `${word.length > 24 ? `${word.slice(0, 22)}…` : word} ${state.counts[word]}`).join(", ")}${thin.length > 4 ? " …" : ""}` : "";
  $("thin").title = thin.map((word) => `${word} ${state.counts[word]}`).join(", ");
  for (const which of ["undo", "redo"]) { $(which).disabled = state[which] === null; $(which).title = state[which] === null ? "" : `${state[which]} (Ctrl-${which === "undo" ? "" : "Shift-"}Z)`; }
}
