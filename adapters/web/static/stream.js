// Follows the bridge's events, and goes on after every break where it left off.

const HIDDEN_FOR = 60_000; // a browser allows six connections to one server: pages nobody looks at give theirs back
const LONGEST_WAIT = 15_000;
const SILENT_FOR = 40_000; // the bridge says something every 15 seconds: after this the connection is dead

export class Stream extends EventTarget {
  #source = null;
  #cursor = "";
  #wait = 500;
  #timer = 0;
  #hiddenTimer = 0;
  #heard = 0;

  constructor() {
    super();
    document.addEventListener("visibilitychange", () => this.#visibility());
    window.addEventListener("online", () => this.#now());
    window.addEventListener("pagehide", () => this.#close());
    window.addEventListener("pageshow", () => this.#now());
  }

  start() {
    this.#now();
    setInterval(() => this.#watch(), SILENT_FOR / 4);
  }

  // Begins again without a cursor: the whole state comes.
  resync() {
    this.#cursor = "";
    this.#close();
    this.#now();
  }

  #now() {
    if (this.#source) return;
    clearTimeout(this.#timer);
    const source = new EventSource(this.#cursor ? `events?after=${encodeURIComponent(this.#cursor)}` : "events");
    this.#source = source;
    this.#heard = Date.now();
    source.addEventListener("ping", () => (this.#heard = Date.now()));
    source.addEventListener("open", () => {
      this.#heard = Date.now();
      this.#wait = 500;
      this.#tell("open");
    });
    source.addEventListener("error", () => this.#failed(source));
    for (const name of ["state", "entry", "patch", "hint"]) {
      source.addEventListener(name, (event) => {
        if (this.#source !== source) return;
        this.#heard = Date.now();
        this.#cursor = event.lastEventId;
        this.#tell(name, JSON.parse(event.data));
      });
    }
  }

  #failed(source) {
    if (this.#source !== source) return;
    this.#tell("lost");
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    this.#close();
    this.#timer = setTimeout(() => this.#now(), this.#wait);
    this.#wait = Math.min(LONGEST_WAIT, this.#wait * 2);
    this.#tell("refused");
  }

  #watch() {
    if (!this.#source || this.#source.readyState !== EventSource.OPEN) return;
    if (Date.now() - this.#heard < SILENT_FOR) return;
    this.#tell("lost");
    this.#close();
    this.#now();
  }

  #close() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#timer);
  }

  #visibility() {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) this.#hiddenTimer = setTimeout(() => this.#close(), HIDDEN_FOR);
    else this.#now();
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
