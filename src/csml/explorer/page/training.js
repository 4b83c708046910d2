// Fine-tuning from the page: start, progress, cancel, result.
import { post } from "./api.js";
import { attempt, say } from "./dialogs.js";
import { refillQueue, isOpen } from "./lists.js";
import { model, on, refresh } from "./model.js";

const $ = (id) => document.getElementById(id);
let seen = null, closed = 0;

export function startTraining() {
  $("train").addEventListener("click", () => attempt(async () => { await post("/api/train"); await refresh(); }));
  $("cancel").addEventListener("click", () => attempt(async () => { $("cancel").disabled = true; await post("/api/cancel"); await refresh(); }));
  $("job-close").addEventListener("click", () => { closed = model.state.job.number; $("job").hidden = true; });
  on("state", draw);
}

export const isTraining = () => ["running", "opening"].includes(model.state?.job.state);

function draw() {
  const { job } = model.state, busy = isTraining();
  $("job").hidden = job.state === "none" || closed === job.number;
  $("job").dataset.state = job.state;
  $("train").disabled = busy;
  $("cancel").hidden = job.state !== "running"; $("cancel").disabled = false; $("job-close").hidden = busy;
  $("job-bar").hidden = !busy;
  if (job.total) { $("job-bar").max = job.total; $("job-bar").value = job.done; } else $("job-bar").removeAttribute("value");
  $("job-text").textContent = busy ? `Fine-tuning: ${job.what}` : { done: job.result, failed: `Fine-tuning failed: ${job.result}`, cancelled: "Fine-tuning was cancelled." }[job.state] ?? "";
  $("job-lines").textContent = job.lines.join("\n"); $("job-log").hidden = !job.lines.length;
  if (seen && seen.number === job.number && seen.state !== "done" && job.state === "done") {
    say("The suggestions are the new classifier's.");
    if (isOpen("queue")) attempt(() => refillQueue(false));
  }
  seen = job;
}
