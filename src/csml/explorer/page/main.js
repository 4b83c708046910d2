// Starts the page: loads what there is, connects its parts, and keeps asking what has changed.
import { download, get, setLabelsFile } from "./api.js";
import { drawLegend, fillColumns, filter, startColoring } from "./coloring.js";
import { startDetail } from "./detail.js";
import { attempt, say } from "./dialogs.js";
import { startGallery } from "./gallery.js";
import { startKeys } from "./keys.js";
import { startLabelling } from "./labelling.js";
import { afterLabelling, bySearchedPicture, neighbors, open, startLists, toNext } from "./lists.js";
import { camera, placeOf, redraw, startMap, times } from "./map.js";
import { load, model, on, refresh, selection } from "./model.js";
import { setStart } from "./thumbs.js";
import { isTraining, startTraining } from "./training.js";

const $ = (id) => document.getElementById(id);
const PAUSE = 1500, SHORT_PAUSE = 400;

async function start() {
  if (location.search) history.replaceState(null, "", "/"); // the token is in a cookie now
  await load();
  const { info } = model;
  setLabelsFile(info.file);
  setStart(info.start);
  document.title = `csml explore: ${info.name}`;
  $("title").textContent = `${info.name}: ${info.count.toLocaleString()} images`;
  $("labels-file").textContent = info.file; $("command").textContent = info.command;
  startColoring(); startMap(neighbors); startGallery(); startLabelling(toNext, afterLabelling);
  startLists(); startDetail(); startTraining(); startKeys(); startDropping(); startExport();
  fillColumns(); filter(); drawLegend();
  on("state", () => { $("map-settings").textContent = `The map: ${model.state.map.settings}${model.state.map.finished ? "." : " (being made)."}`; });
  $("help-menu").addEventListener("toggle", () => attempt(drawHistory));
  say("Label what the list proposes, or lasso a group on the map.");
  await refresh();
  await open("queue");
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
    attempt(() => download("/api/export", body));
    $("export-menu").open = false;
  });
}

async function drawHistory() {
  const actions = await get("/api/history");
  $("history").replaceChildren(...actions.map(({ at, who, about, undone }) => {
    const item = document.createElement("li");
    item.textContent = `${new Date(at).toLocaleString()}, ${who}: ${about}`;
    item.classList.toggle("undone", undone);
    return item;
  }));
}

start().catch((error) => say(`Something went wrong: ${error.message}`));
