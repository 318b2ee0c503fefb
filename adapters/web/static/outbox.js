// Messages on their way: shown at once, sent in order, sent again until the bridge has them.
// Each has an id of its own, so that sending it twice is one message.

import { post } from "./post.js";

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15_000;
const KEPT = `bridge-outbox:${location.pathname}:`;

export class Outbox extends EventTarget {
  #list;
  #items = [];
  #sending = false;
  #wait = FIRST_WAIT;
  #timer = 0;

  constructor(list) {
    super();
    this.#list = list;
    window.addEventListener("online", () => this.#soon());
  }

  // Messages that were not sent when the page was left. Their files could not be kept.
  restore() {
    for (const store of [localStorage, sessionStorage]) {
      for (const key of Object.keys(store).filter((key) => key.startsWith(KEPT))) {
        try {
          this.#restoreOne(JSON.parse(store.getItem(key)));
        } catch {
          store.removeItem(key);
        }
      }
    }
    this.#soon();
  }

  #restoreOne({ names = [], refused, ...kept }) {
    const item = { ...kept, names, files: [] };
    this.#push(item);
    if (names.length) this.#refuse(item, `Not sent: please attach ${names.join(", ")} again.`);
    else if (refused) this.#refuse(item, refused);
  }

  add(text, files = []) {
    const item = { id: newId(), text, at: Date.now(), files, names: files.map((file) => file.name) };
    keep(item);
    this.#push(item);
    item.read = this.#read(item);
    this.#soon();
  }

  // Whether nothing waits to be sent.
  get isEmpty() {
    return !this.#items.some(waits);
  }

  // Whether files wait to be sent, which are lost with the page.
  get hasFiles() {
    return this.#items.some((item) => waits(item) && item.files.length);
  }

  // Whether no message is shown here.
  get isBlank() {
    return this.#items.length === 0;
  }

  // The bridge is there (again).
  nudge() {
    this.#wait = FIRST_WAIT;
    this.#soon();
  }

  // Drops the messages that are part of the conversation now.
  settle(isShown) {
    for (const item of this.#items.filter((item) => isShown(item.id))) this.#drop(item);
  }

  #push(item) {
    item.element = bubble(item);
    this.#items.push(item);
    this.#items.sort((one, other) => one.at - other.at);
    this.#list.insertBefore(item.element, this.#items[this.#items.indexOf(item) + 1]?.element ?? null);
    this.#tell();
  }

  #drop(item) {
    forget(item);
    item.element.remove();
    this.#items = this.#items.filter((other) => other !== item);
    this.#tell();
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#send(), 0);
  }

  async #send() {
    if (this.#sending) return;
    this.#sending = true;
    try {
      let item;
      while ((item = this.#items.find(waits))) {
        if (!(await this.#sendOne(item))) break;
      }
    } finally {
      this.#sending = false;
    }
  }

  // Takes the files as they are now: what becomes of them on the disk later is nothing to the message.
  async #read(item) {
    const lost = [];
    const copies = [];
    for (const file of item.files) {
      try {
        copies.push(new File([await file.arrayBuffer()], file.name, { type: file.type }));
      } catch {
        lost.push(file.name);
      }
    }
    item.files = copies;
    if (lost.length) this.#refuse(item, `${lost.join(", ")} can no longer be read.`);
  }

  async #sendOne(item) {
    await item.read;
    if (item.refused) return true;
    const form = new FormData();
    form.set("id", item.id);
    form.set("text", item.text);
    for (const file of item.files) form.append("files", file, file.name);
    const slow = setTimeout(() => this.#say(item, "Sending…"), 800);
    const answer = await post("messages", form);
    clearTimeout(slow);
    if (!this.#items.includes(item)) return true;
    if (answer.ok && answer.accepted !== "ignored") {
      this.#wait = FIRST_WAIT;
      item.sent = true;
      forget(item);
      item.element.classList.remove("pending");
      this.#say(item, "");
      this.#tell();
      return true;
    }
    if (answer.ok || answer.refused) {
      this.#refuse(item, answer.ok ? "The bridge did not take this message." : answer.error);
      return true;
    }
    this.#say(item, navigator.onLine ? "Not sent yet. Trying again…" : "You are offline. It will be sent.");
    this.#timer = setTimeout(() => this.#send(), this.#wait);
    this.#wait = Math.min(LONGEST_WAIT, this.#wait * 2);
    return false;
  }

  #say(item, text) {
    item.element.querySelector(".delivery").textContent = text;
  }

  #refuse(item, reason) {
    item.refused = reason;
    keep(item);
    item.element.classList.add("refused");
    this.#say(item, reason);
    const edit = document.createElement("button");
    edit.type = "button";
    edit.className = "quiet";
    edit.textContent = "Edit";
    edit.addEventListener("click", () => {
      this.#drop(item);
      this.dispatchEvent(new CustomEvent("edit", { detail: item }));
    });
    item.element.querySelector(".delivery").append(edit);
  }

  #tell() {
    this.dispatchEvent(new CustomEvent("change"));
  }
}

// A UUID; the browser's own function is missing on pages that did not come over TLS.
export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function waits(item) {
  return !item.sent && !item.refused;
}

// Any tab can send a text. A message with files, or one that was refused, is only for the tab that it was written in.
function keep({ id, text, at, names, refused }) {
  try {
    forget({ id });
    const store = names.length || refused ? sessionStorage : localStorage;
    store.setItem(KEPT + id, JSON.stringify({ id, text, at, names, refused }));
  } catch {
    // Storage is full or forbidden: the message lives as long as the page.
  }
}

function forget({ id }) {
  localStorage.removeItem(KEPT + id);
  sessionStorage.removeItem(KEPT + id);
}

function bubble(item) {
  const element = document.createElement("article");
  element.className = "entry ask pending";
  const box = document.createElement("div");
  box.className = "bubble pending-text";
  box.textContent = [item.text, ...item.names].filter(Boolean).join("\n");
  const delivery = document.createElement("p");
  delivery.className = "delivery";
  delivery.setAttribute("role", "status");
  element.append(box, delivery);
  return element;
}
