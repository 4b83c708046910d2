// Search where the site is opened from a folder: browsers start no worker from a file, so its script runs in a hidden frame.
// The plugin "offline" looks for this name; without it, it would load a script of that name from another server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe"), script = document.createElement("script");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data })); // the script's answers
      this.post = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
      script.src = address;
      frame.contentDocument.head.append(script);
    }

    postMessage(data) { this.ready.then(() => this.post(data)); }
  };
}
