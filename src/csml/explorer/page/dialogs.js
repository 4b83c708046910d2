// Short messages, and questions that need an answer.
const $ = (id) => document.getElementById(id);

export function say(text) { $("status").textContent = $("status").title = text; }

// Runs something and says why it failed, if it does; `finally` something else.
export async function attempt(work, atEnd = () => {}) {
  try { return await work(); } catch (error) { say(error.message); return undefined; } finally { atEnd(); }
}

// Ask; answers: [value, text] pairs. Returns the chosen value, or null if the question was left.
export function question(text, answers) {
  $("dialog-text").textContent = text;
  $("dialog-buttons").replaceChildren(...answers.map(([value, words]) => {
    const button = document.createElement("button");
    button.value = value; button.textContent = words;
    return button;
  }));
  $("dialog").returnValue = "";
  $("dialog").showModal();
  return new Promise((resolve) => {
    $("dialog").addEventListener("close", () => resolve($("dialog").returnValue || null), { once: true });
  });
}
