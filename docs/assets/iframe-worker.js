// The search runs in a worker, and browsers start none for a page that was opened from the disk. There an invisible
// frame does the same work: it has a window of its own, in which the worker's script listens and answers.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      script.src = new URL(address, document.baseURI);
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.deliver(data));
      };
      this.inside.document.head.append(script);
    }
    set onmessage(listener) { this.addEventListener("message", listener); }
    set onerror(listener) { this.addEventListener("error", listener); }
    deliver(data) { this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })); }
    postMessage(data) { this.ready ? this.deliver(data) : this.waiting.push(data); }
    terminate() { this.inside.frameElement.remove(); }
  };
  window.Worker = window.IFrameWorker;
}
