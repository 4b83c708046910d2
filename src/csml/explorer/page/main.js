// Starts the page: loads what there is, connects its parts, and keeps asking what has changed.
import { download, get, setLabelsFile } from "./api.js";
import { drawLegend, fillColumns, filter, startColoring } from "./coloring.js";
import { startDetail } from "./detail.js";
import { attempt, say } from "./dialogs.js";
import { startGallery } from "./gallery.js";
import { startKeys } from "./keys.js";
import { startLabelling } from "./labelling.js";
import { afterLabelling, bySearchedPicture, neighbors, openFromAddress, startLists, toNext } from "./lists.js";
import { startMenus } from "./menus.js";
import { camera, placeOf, redraw, startMap, times } from "./map.js";
import { emit, load, model, on, refresh, selection } from "./model.js";
import { setStart } from "./thumbs.js";
import { isTraining, startTraining } from "./training.js";
import { startViewer } from "./viewer.js";

const $ = (id) => document.getElementById(id);
const PAUSE = 1500, SHORT_PAUSE = 400;

async function start() {
  if (location.search) history.replaceState(null, "", `/${location.hash}`); // the token is in a cookie now
  await load();
  const { info } = model;
  setLabelsFile(info.file);
  setStart(info.start);
  document.title = `csml explore: ${info.name}`;
  $("title").textContent = `${info.name}: ${info.count.toLocaleString()} images`;
  $("labels-file").textContent = info.file; $("command").textContent = info.command;
  startColoring(); startMap(neighbors); startGallery(); startLabelling(toNext, afterLabelling);
  startLists(); startDetail(); startTraining(); startKeys(); startDropping(); startExport(); startMenus(); startViewer();
  fillColumns(); filter(); drawLegend();
  on("state", () => { $("map-settings").textContent = `The map: ${model.state.map.settings}${model.state.map.finished ? "." : " (being made)."}`; });
  $("history-menu").addEventListener("toggle", () => attempt(drawHistory));
  on("labels", () => { if ($("history-menu").open) attempt(drawHistory); });
  await refresh();
  say("Label what the list proposes, or lasso a group on the map.");
  emit("state"); emit("focus"); // every part draws what there is
  await openFromAddress();
  redraw();
  setTimeout(ask, PAUSE);
  globalThis.csmlPage = { model, camera, placeOf, times, redraw }; // for tests, benchmarks and the curious
  document.body.dataset.drawn = "yes";
}

async function ask() {
  await refresh().catch(() => {}); // the banner says it
  setTimeout(ask, isTraining() || !model.state.map.finished ? SHORT_PAUSE : PAUSE);
}

function startDropping() {
  const files = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => { event.preventDefault(); if (files(event)) $("drop").hidden = false; });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").hidden = true;
    if (event.dataTransfer.files.length) bySearchedPicture(event.dataTransfer.files[0]);
  });
}

function startExport() {
  $("export").addEventListener("submit", (event) => {
    event.preventDefault();
    const what = $("export-what").value, body = { format: $("export-format").value };
    if (what === "selection") body.ids = selection();
    if (what === "shown" || what === "all") body.ids = Array.from(model.visible.keys()).filter((id) => what === "all" || model.visible[id]);
    const nothing = { selection: "Nothing is selected, so there is nothing to export.", shown: "The map shows no image, so there is nothing to export." };
    if (body.ids?.length === 0) { say(nothing[what]); return; }
    if (!body.ids && !Object.keys(model.state.counts).length && !Object.keys(model.state.tags).length) { say("Nothing is labelled or tagged yet, so there is nothing to export."); return; }
    attempt(async () => say(`Downloaded ${await download("/api/export", body)}.`));
    $("export-menu").open = false;
  });
}

async function drawHistory() {
  const actions = await get("/api/history");
  if (!actions.length) { $("history").replaceChildren("Nothing was labelled or tagged yet."); return; }
  $("history").replaceChildren(...actions.map(({ at, who, about, undone }) => {
    const item = document.createElement("li");
    item.textContent = `${new Date(at).toLocaleString()}, ${who}: ${about}`;
    item.classList.toggle("undone", undone);
    return item;
  }));
}

start().catch((error) => say(`Something went wrong: ${error.message}`));
