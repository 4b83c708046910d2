// The keyboard, wherever the focus is, as long as it is not in a field.
import { step } from "./gallery.js";
import { acceptTargets, giveNumber, turn } from "./labelling.js";
import { goTo, remove } from "./lists.js";
import { dropPath } from "./map.js";
import { closeMenus } from "./menus.js";
import { model, select, toggle } from "./model.js";
import { say } from "./dialogs.js";
import { closeViewer, enlarge } from "./viewer.js";

export function startKeys() { document.addEventListener("keydown", press); }

function press(event) {
  const field = event.target.closest("input, select, textarea, #dialog"), typing = field && field.type !== "checkbox" && field.type !== "range";
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !(typing && event.target.value)) {
    event.preventDefault(); turn(event.shiftKey ? "redo" : "undo"); return;
  }
  if (event.key === "Escape" && !event.target.closest("dialog")) {
    if (closeMenus() || dropPath()) return;
    if (typing) { event.target.value = event.target.tagName === "INPUT" ? "" : event.target.value; document.getElementById("gallery").focus(); } else if (model.chosen) { select([], "new"); say("Nothing is selected now."); }
    return;
  }
  if (field || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("button, summary, a") && (event.key === "Enter" || event.key === " ")) return;
  if (step(event.key)) event.preventDefault();
  else if (event.key === "Enter") { event.preventDefault(); acceptTargets(); }
  else if (event.key === " ") { event.preventDefault(); if (model.focus >= 0) toggle(model.focus); }
  else if (event.key === "Delete" || event.key === "Backspace") { event.preventDefault(); remove(); }
  else if (event.key === "*") enlarge();
  else if (event.key === "/") { event.preventDefault(); closeViewer(); goTo("search").then(() => document.getElementById("find").focus()); }
  else if (event.key === "?") { const help = document.getElementById("help-menu"); help.open = !help.open; }
  else if (/^[1-9]$/.test(event.key)) { event.preventDefault(); giveNumber(Number(event.key)); }
  else if (event.key.length === 1 && /[\p{L}0]/u.test(event.key)) { closeViewer(); document.getElementById("label").focus(); } // and the letter goes there
}
