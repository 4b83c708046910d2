// The examples of a search: pictures that the hits should be like or unlike. Each is shown, and a click on it takes it away.
import { picture } from "./thumbs.js";

const like = { positive: [], negative: [], uploads: [] };
const pictures = new Map(); // number of an upload → address of its picture

export const examples = () => like;
export const wanted = () => like.positive.length + like.uploads.length;

export function add(id, kind) {
  for (const list of [like.positive, like.negative]) if (list.includes(id)) list.splice(list.indexOf(id), 1);
  like[kind].push(id);
}

export function forget() {
  like.positive = []; like.negative = []; like.uploads = [];
  for (const address of pictures.values()) URL.revokeObjectURL(address);
  pictures.clear();
}

// A picture from outside alone.
export function upload(number, file) {
  forget();
  like.uploads = [number];
  pictures.set(number, URL.createObjectURL(file));
}

// Buttons, one per example; `changed` is called after one was taken away.
export function chips(changed) {
  const make = (kind, sign, words) => like[kind].map((id) => {
    const button = document.createElement("button");
    button.type = "button"; button.className = "chip"; button.title = `${words}; click to take it away`;
    button.setAttribute("aria-label", `${words}: take it away`);
    button.append(sign, kind === "uploads" ? picture(id, 28, pictures.get(id)) : picture(id, 28));
    button.addEventListener("click", () => { like[kind].splice(like[kind].indexOf(id), 1); changed(); });
    return button;
  });
  return [...make("uploads", "+", "like your picture"), ...make("positive", "+", "like this"), ...make("negative", "−", "unlike this")];
}
