// Questions to the server. One banner says when it is gone; nothing waits in silence.
const gone = document.getElementById("gone");
let file = "labels.csv in the run";

export function setLabelsFile(name) { file = name; }

// The server refuses what belongs to another start: this page may be of another run, served at this port before.
const headers = {};
export function belongTo(start) { headers["csml-start"] = start; }

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { ...options.headers, ...headers } });
  } catch {
    gone.textContent = `The server has stopped, so nothing works here until it runs again. Your labels are safe in ${file}. Start csml explore again and open the address it prints.`;
    gone.hidden = false;
    throw new Error("The server has stopped.");
  }
  if (answer.status === 403 || answer.status === 412) {
    gone.textContent = `csml explore was started anew: ${answer.status === 412 ? "reload this page" : "open the address it has printed"}.`;
    gone.hidden = false;
    throw new Error("This page is of an earlier start.");
  }
  gone.hidden = true;
  return answer;
}

async function checked(answer) {
  if (!answer.ok) throw new Error((await answer.text()) || `The server answered ${answer.status}.`);
  return answer;
}

export async function get(path) { return (await checked(await ask(path))).json(); }

// The values of a column or of the points; null as long as they are not ready.
export async function getArray(path, Type) {
  const answer = await checked(await ask(path));
  return answer.status === 204 ? null : new Type(await answer.arrayBuffer());
}

export function send(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) });
}

export async function post(path, body) { return (await checked(await send(path, body))).json(); }

export async function upload(path, file) { return (await checked(await ask(path, { method: "POST", body: file }))).json(); }

export async function download(path, body) {
  const answer = await checked(await send(path, body)), link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition"))?.[1] ?? "images";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  return link.download;
}
