// The image in focus as large as the window. The keys of the list work here, too: arrows, Enter, numbers, Space.
import { describe, model, on } from "./model.js";
import { picture } from "./thumbs.js";

const $ = (id) => document.getElementById(id), viewer = $("viewer");

export function startViewer() {
  for (const place of ["gallery", "detail"]) $(place).addEventListener("dblclick", (event) => { if (event.target.closest(".tile, img, .broken")) enlarge(); });
  $("viewer-close").addEventListener("click", () => viewer.close());
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); }); // beside the picture
  on("focus", () => { if (viewer.open) draw(); });
}

// Open it, or close it again.
export function enlarge() {
  if (viewer.open) { viewer.close(); return; }
  if (model.focus < 0) return;
  draw();
  viewer.showModal();
}

export function closeViewer() { if (viewer.open) viewer.close(); }

async function draw() {
  const id = model.focus, address = `/image/${id}`;
  $("viewer-picture").replaceChildren(picture(id, 0, address));
  $("viewer-file").href = address;
  $("viewer-name").textContent = "";
  try { await describe([id]); } catch { return; } // the banner says it
  if (model.focus === id) $("viewer-name").textContent = model.about.get(id).name;
}
