// Shows the entries of the conversation and keeps them in step with the patches that come for them.

export class Timeline extends EventTarget {
  #list;
  #entries = new Map();
  #shift = 0; // the bridge's clock minus ours, in seconds

  constructor(list) {
    super();
    this.#list = list;
    list.addEventListener("click", (event) => this.#rememberFold(event));
    setInterval(() => this.#tick(), 1000);
  }

  // Takes over the whole state. Earlier entries that the reader has asked for stay.
  reset(state) {
    this.#shift = state.now - Date.now() / 1000;
    const named = new Set(state.entries.map((entry) => entry.id));
    const first = state.entries[0];
    for (const [id, entry] of this.#entries) {
      if (named.has(id) || (first && state.earlier && before(entry.data, first))) continue;
      entry.element.remove();
      this.#entries.delete(id);
    }
    for (const entry of state.entries) this.#put(entry);
    this.#tick();
    this.#changed();
  }

  add(entries) {
    for (const entry of entries) if (!this.#entries.has(entry.id)) this.#put(entry);
    this.#changed();
  }

  // An entry is new or has changed as a whole. One from before the first that is shown is left for later.
  put(entry) {
    const first = this.first;
    if (!this.#entries.has(entry.id) && first && before(entry, first)) return;
    this.#put(entry);
    this.#changed(entry.id);
  }

  // False when the patch is not for what is shown here: then the whole state is needed.
  patch(patch) {
    const entry = this.#entries.get(patch.id);
    if (!entry || entry.data.revision !== patch.base) return false;
    const was = entry.data.phase;
    Object.assign(entry.data, { revision: patch.base + 1, phase: patch.phase, live: patch.live });
    if (patch.keys) {
      const [start, removed, names] = patch.keys;
      entry.keys.splice(start, removed, ...names);
    }
    for (const [key, html] of Object.entries(patch.set ?? {})) this.#setPiece(entry, key, html);
    for (const [key, [start, removed, inserted]] of Object.entries(patch.splice ?? {})) {
      const html = entry.pieces.get(key).html;
      this.#setPiece(entry, key, html.slice(0, start) + inserted + html.slice(start + removed));
    }
    if (patch.keys) this.#arrange(entry);
    this.#mark(entry);
    if (was !== patch.phase) this.dispatchEvent(new CustomEvent("phase", { detail: entry }));
    this.#changed(patch.id);
    return true;
  }

  has(id) {
    return this.#entries.has(id);
  }

  get isEmpty() {
    return this.#entries.size === 0;
  }

  get first() {
    return this.#byElement(this.#list.firstElementChild)?.data;
  }

  get last() {
    return this.#byElement(this.#list.lastElementChild)?.data;
  }

  // The newest reply that is still being written.
  get live() {
    const live = [...this.#entries.values()].filter((entry) => entry.data.live);
    return live.sort((one, other) => (before(one.data, other.data) ? 1 : -1))[0]?.data;
  }

  #byElement(element) {
    return element ? this.#entries.get(element.dataset.id) : undefined;
  }

  #put(data) {
    let entry = this.#entries.get(data.id);
    if (!entry) {
      entry = { data, keys: [], pieces: new Map(), folds: new Map() };
      [entry.element, entry.body] = frame(data);
      this.#entries.set(data.id, entry);
      this.#insert(entry);
    }
    entry.data = data;
    entry.keys = data.pieces.map(([key]) => key);
    for (const [key, html] of data.pieces) this.#setPiece(entry, key, html);
    this.#arrange(entry);
    this.#mark(entry);
  }

  #insert(entry) {
    let next = null;
    for (let element = this.#list.lastElementChild; element; element = element.previousElementSibling) {
      if (before(this.#byElement(element).data, entry.data)) break;
      next = element;
    }
    this.#list.insertBefore(entry.element, next);
  }

  #setPiece(entry, key, html) {
    let piece = entry.pieces.get(key);
    if (!piece) {
      const element = document.createElement("div");
      element.className = "piece";
      element.dataset.key = key;
      piece = { element, html: "" };
      entry.pieces.set(key, piece);
    }
    if (piece.html === html) return;
    piece.html = html;
    const scrolled = [...piece.element.querySelectorAll("pre, .table")].map((box) => box.scrollLeft);
    const focused = focusWithin(piece.element);
    piece.element.innerHTML = html; // made and sanitised by the bridge
    piece.element.querySelectorAll("pre, .table").forEach((box, index) => {
      if (scrolled[index]) box.scrollLeft = scrolled[index];
    });
    for (const fold of piece.element.querySelectorAll("details[data-fold]")) {
      const chosen = entry.folds.get(fold.dataset.fold);
      if (chosen !== undefined) fold.open = chosen;
    }
    if (focused) this.#focusAgain(piece.element, focused);
  }

  #focusAgain(element, [selector, index]) {
    const control = element.querySelectorAll(selector)[index];
    control?.focus({ preventScroll: true });
    if (!control || document.activeElement !== control) this.#unfocused();
  }

  // The control that had the focus is gone: somebody has to take the focus, or the keyboard is lost.
  #unfocused() {
    this.dispatchEvent(new CustomEvent("unfocused"));
  }

  // Puts the pieces into their order and drops those that are no longer named.
  #arrange(entry) {
    const wanted = new Set(entry.keys);
    let isUnfocused = false;
    for (const [key, piece] of entry.pieces) {
      if (wanted.has(key)) continue;
      isUnfocused ||= piece.element.contains(document.activeElement);
      piece.element.remove();
      entry.pieces.delete(key);
    }
    if (isUnfocused) this.#unfocused();
    let next = null;
    for (const key of [...entry.keys].reverse()) {
      const { element } = entry.pieces.get(key);
      if (element.parentNode !== entry.body || element.nextSibling !== next) entry.body.insertBefore(element, next);
      next = element;
    }
  }

  #mark(entry) {
    const { element, data } = entry;
    if (data.kind !== "reply") return;
    element.classList.toggle("live", data.live);
    element.setAttribute("aria-busy", String(data.live));
    element.dataset.phase = data.phase;
  }

  // What the reader has folded or unfolded stays so while the piece is replaced.
  #rememberFold(event) {
    const fold = event.target.closest("summary")?.parentElement;
    if (!fold?.dataset.fold) return;
    this.#byElement(fold.closest(".entry")).folds.set(fold.dataset.fold, !fold.open);
  }

  #tick() {
    const now = Date.now() / 1000 + this.#shift;
    for (const element of this.#list.querySelectorAll("time[data-since]")) {
      const seconds = Math.max(0, Math.round(now - Number(element.dataset.since)));
      const text = seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
      if (element.textContent !== text) element.textContent = text;
    }
  }

  #changed(id) {
    this.dispatchEvent(new CustomEvent("change", { detail: id }));
  }
}

function before(one, other) {
  return one.order < other.order || (one.order === other.order && one.seq < other.seq);
}

// The element of an entry, and the element that its pieces go into.
function frame(data) {
  const element = document.createElement(data.kind === "divider" ? "div" : "article");
  element.className = `entry ${data.kind}`;
  element.dataset.id = data.id;
  if (data.kind === "divider") {
    element.setAttribute("role", "separator");
    return [element, element];
  }
  element.setAttribute("aria-label", data.kind === "ask" ? "You" : "Answer");
  if (data.kind === "reply") return [element, element];
  const bubble = document.createElement("div");
  bubble.className = "bubble";
  bubble.title = new Date(data.at * 1000).toLocaleString();
  element.append(bubble);
  return [element, bubble];
}

// What finds the focused control again in new HTML for the same piece: a selector, and which of those that match.
// Null when the focus is elsewhere.
function focusWithin(element) {
  const focused = document.activeElement;
  if (!focused || !element.contains(focused)) return null;
  const { press } = focused.dataset;
  const name = focused.classList.length ? `.${CSS.escape(focused.classList[0])}` : focused.localName;
  const selector = press ? `[data-press="${CSS.escape(press)}"]` : name;
  return [selector, [...element.querySelectorAll(selector)].indexOf(focused)];
}
