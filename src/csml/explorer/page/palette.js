// Colours and shapes of named groups. Every name keeps its own, whatever is filtered.
// The 24 colours were chosen one after the other, each as far as possible from those before it in CIELAB, as seen with
// normal, deuteranopic and protanopic vision. The shape is a second cue: 24 × 7 pairs differ.
export const COLORS = [
  "#0078b4", "#00e100", "#5a00ff", "#a51e2d", "#96d2a5", "#4b69f0", "#e1b4e1", "#b4964b", "#784b69", "#ff78ff", "#00875a", "#a54b00",
  "#3ca5a5", "#b40096", "#9600c3", "#969600", "#f03c69", "#a5d25a", "#5ad278", "#5a4bff", "#ff5aa5", "#ff2dd2", "#2db4ff", "#a5693c",
];
// On a dark page: a quarter of the way to white, so that the darkest ones can still be seen.
export const LIGHTER = COLORS.map((color) => `#${bytesOf(color).map((value) => Math.round(value + (255 - value) / 4).toString(16).padStart(2, "0")).join("")}`);
export const DARK = matchMedia("(prefers-color-scheme: dark)");
export const GLYPHS = ["●", "■", "▲", "◆", "✚", "✖", "○"];
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // dark to light, by lightness alone
const places = new Map(); // name → its place, in the order in which names became known

export function placeOf(name) {
  if (!places.has(name)) places.set(name, places.size);
  return places.get(name);
}

// Clusters have the first colours without taking them from labels, whose colours would depend on what was looked at before.
const cluster = (name) => /^cluster (\d+)$/.exec(name)?.[1] - 1;

export function looksOf(name) {
  const place = cluster(name) >= 0 ? cluster(name) : placeOf(name);
  return { color: (DARK.matches ? LIGHTER : COLORS)[place % COLORS.length], glyph: GLYPHS[place % GLYPHS.length], shape: place % GLYPHS.length };
}

export function bytesOf(color) {
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
}

export function rampBytes(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1), low = Math.min(RAMP.length - 2, Math.floor(at));
  return RAMP[low].map((value, channel) => Math.round(value + (RAMP[low + 1][channel] - value) * (at - low)));
}

export const RAMP_CSS = `linear-gradient(to right, ${RAMP.map((stop) => `rgb(${stop})`).join(", ")})`;
