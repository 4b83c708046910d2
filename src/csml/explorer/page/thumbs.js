// Thumbnails as images that can be drawn on a canvas; the least recently used ones are dropped.
const MOST = 3000, cache = new Map();

// Browsers keep thumbnails for an hour; those of another run, served at this port before, must not be shown.
let start = "";
export function setStart(key) { start = key; }

export const address = (id) => `/thumb/${id}?start=${start}`;

// The image if it is there, null while it is loading or if it cannot be read; calls `ready` when it has come.
export function drawable(id, ready) {
  let image = cache.get(id);
  if (image) { cache.delete(id); cache.set(id, image); } else {
    image = new Image();
    image.addEventListener("load", ready);
    image.addEventListener("error", () => { image.broken = true; });
    image.src = address(id);
    cache.set(id, image);
    if (cache.size > MOST) cache.delete(cache.keys().next().value);
  }
  return image.complete && !image.broken && image.naturalWidth ? image : null;
}

// An element that shows an image, or says that it cannot be read.
export function picture(id, side, source = address(id)) {
  const image = document.createElement("img");
  image.src = source; image.alt = ""; image.draggable = false;
  if (side) image.width = image.height = side;
  image.addEventListener("error", () => {
    const broken = document.createElement("div");
    broken.className = "broken"; broken.textContent = "cannot be read";
    if (side) broken.style.width = broken.style.height = `${side}px`;
    image.replaceWith(broken);
  });
  return image;
}
