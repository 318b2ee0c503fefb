// Where a message is written, and the files that go with it.

const DRAFT = `bridge-draft:${location.pathname}`; // kept per tab, so that a reload does not lose what is being written

export class Composer extends EventTarget {
  #form = document.getElementById("composer");
  #text = document.getElementById("text");
  #send = document.getElementById("send");
  #input = document.getElementById("files");
  #chips = document.getElementById("attached");
  #drop = document.getElementById("drop");
  #files = [];
  #limits = document.body.dataset;

  constructor() {
    super();
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#text.addEventListener("input", () => this.#changed());
    this.#text.addEventListener("keydown", (event) => this.#key(event));
    this.#text.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) {
        event.preventDefault();
        this.#attach(event.clipboardData.files);
      }
    });
    document.getElementById("attach")?.addEventListener("click", () => this.#input.click());
    this.#input?.addEventListener("change", () => {
      this.#attach(this.#input.files);
      this.#input.value = "";
    });
    if (this.#input) this.#takeDrops();
    this.#text.value ||= kept();
    this.#changed();
  }

  get text() {
    return this.#text.value;
  }

  get hasFiles() {
    return this.#files.length > 0;
  }

  // Writes a message again that was not taken.
  write(text, files = []) {
    this.#text.value = this.#text.value ? `${text}\n${this.#text.value}` : text;
    this.#attach(files);
    this.#changed();
    this.focus();
  }

  focus() {
    this.#text.focus({ preventScroll: true });
  }

  // Where the focus goes when the control that had it is done with. On a touch screen that would open the keyboard.
  takeFocusBack() {
    if (!isTouched()) this.focus();
  }

  #submit() {
    const text = this.#text.value.trim();
    if (!text && !this.#files.length) return;
    const files = this.#files;
    this.#text.value = "";
    this.#files = [];
    this.#showFiles();
    this.#changed();
    this.dispatchEvent(new CustomEvent("send", { detail: { text, files } }));
  }

  #key(event) {
    // While an input method is open, Enter chooses a word. On a touch keyboard it is the only way to a new line.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    if (isTouched() && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.#submit();
  }

  #changed() {
    keep(this.#text.value);
    this.#send.disabled = !this.#text.value.trim() && !this.#files.length;
    this.#text.style.height = "auto";
    this.#text.style.height = `${this.#text.scrollHeight}px`;
  }

  #attach(files) {
    for (const file of files) {
      if (this.#files.length >= Number(this.#limits.mostFiles)) {
        this.#complain(`At most ${this.#limits.mostFiles} files go with one message.`);
        break;
      }
      const total = this.#files.reduce((sum, other) => sum + other.size, file.size);
      if (file.size > Number(this.#limits.mostFileBytes)) {
        this.#complain(`${file.name} is larger than ${this.#limits.mostFileSize}.`);
        continue;
      }
      if (total > Number(this.#limits.mostBytes)) {
        this.#complain(`With ${file.name} the message would be larger than ${this.#limits.mostSize}.`);
        continue;
      }
      this.#files.push(file);
    }
    this.#showFiles();
    this.#changed();
  }

  #complain(text) {
    this.dispatchEvent(new CustomEvent("problem", { detail: text }));
  }

  #showFiles() {
    this.#chips.replaceChildren(
      ...this.#files.map((file) => {
        const item = document.createElement("li");
        const chip = document.createElement("span");
        chip.className = "chip";
        const name = document.createElement("span");
        name.className = "chip-name";
        name.textContent = file.name;
        const remove = document.createElement("button");
        remove.type = "button";
        remove.setAttribute("aria-label", `Remove ${file.name}`);
        const icon = document.createElement("span");
        icon.className = "icon icon-cross";
        remove.append(icon);
        remove.addEventListener("click", () => {
          this.#files = this.#files.filter((other) => other !== file);
          this.#showFiles();
          this.#changed();
          this.focus();
        });
        chip.append(name, remove);
        item.append(chip);
        return item;
      }),
    );
    this.#chips.hidden = !this.#files.length;
  }

  #takeDrops() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    window.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.#drop.hidden = false;
    });
    window.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) this.#drop.hidden = true;
    });
    window.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.#drop.hidden = true;
      this.#attach(event.dataTransfer.files);
      this.focus();
    });
  }
}

function isTouched() {
  return matchMedia("(pointer: coarse)").matches;
}

function keep(text) {
  try {
    if (text) sessionStorage.setItem(DRAFT, text);
    else sessionStorage.removeItem(DRAFT);
  } catch {
    // Storage is full or forbidden: the draft lives as long as the page.
  }
}

function kept() {
  try {
    return sessionStorage.getItem(DRAFT) ?? "";
  } catch {
    return "";
  }
}
