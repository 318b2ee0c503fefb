// Puts the page together: what the bridge says goes into the timeline, what the person does goes to the bridge.

import { Composer } from "./composer.js";
import { newId, Outbox } from "./outbox.js";
import { post } from "./post.js";
import { Stream } from "./stream.js";
import { Timeline } from "./timeline.js";

const NEAR_THE_END = 80; // pixels
const PRESS_TRIES = 5;
const ANNOUNCED = 1000; // characters of an answer that are read out

const $ = (id) => document.getElementById(id);
const title = document.title;
const timeline = new Timeline($("timeline"));
const outbox = new Outbox($("outbox"));
const composer = new Composer();
const stream = new Stream();

// ---------------------------------------------------------------- the end of the conversation stays in sight

let follows = true;
const scroller = $("scroller");

function scrollToEnd() {
  follows = true;
  scroller.scrollTop = scroller.scrollHeight;
  $("jump").hidden = true;
}

const sizes = new ResizeObserver(() => follows && scrollToEnd());
sizes.observe($("content"));
sizes.observe(scroller);
scroller.addEventListener("scroll", () => {
  const gap = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  follows = gap < NEAR_THE_END;
  $("jump").hidden = follows;
});
$("jump").addEventListener("click", () => {
  scrollToEnd();
  composer.focus();
});

// ---------------------------------------------------------------- what the bridge says

let hasState = false;
let hintIsOver = false;

stream.addEventListener("state", ({ detail: state }) => {
  if (state.version !== document.body.dataset.version && outbox.isEmpty && !composer.text) {
    location.reload(); // the bridge has been updated
    return;
  }
  const isFirst = !hasState;
  hasState = true;
  timeline.reset(state);
  $("earlier").hidden = !state.earlier;
  if (isFirst) {
    outbox.restore();
    scrollToEnd();
  }
});
stream.addEventListener("entry", ({ detail: entry }) => {
  hintIsOver = false;
  timeline.put(entry);
});
stream.addEventListener("patch", ({ detail: patch }) => {
  if (!timeline.patch(patch)) stream.resync();
});
stream.addEventListener("hint", ({ detail: hint }) => {
  hintIsOver = hint.state === "done" || hint.state === "failed";
  refresh();
});
timeline.addEventListener("change", () => refresh());
timeline.addEventListener("phase", ({ detail: entry }) => announce(entry));
outbox.addEventListener("change", () => refresh());

function refresh() {
  outbox.settle((id) => timeline.has(id));
  const last = timeline.last;
  $("welcome").hidden = !hasState || !timeline.isEmpty || !outbox.isBlank;
  $("typing").hidden = hintIsOver || !(last && last.kind !== "reply");
  document.title = timeline.live ? `… ${title}` : title;
}

function announce(entry) {
  const { live, phase } = entry.data;
  if (live) return;
  const text = entry.element.innerText.slice(0, ANNOUNCED);
  $("announce").textContent = { stopped: "Stopped.", failed: "The answer failed." }[phase] ?? text;
  const isIdle = document.activeElement === $("text") ? !composer.text : document.activeElement === document.body;
  if (phase === "asking" && isIdle) entry.element.querySelector(".question button, .question input")?.focus();
}

// ---------------------------------------------------------------- the connection

let bannerTimer = 0;

function banner(text, after = 0) {
  clearTimeout(bannerTimer);
  bannerTimer = setTimeout(() => {
    $("banner").textContent = text;
    $("banner").hidden = !text;
  }, after);
}

const LOST_FOR = 1500; // a break that is mended sooner is not worth a word
let lostAt = 0;

stream.addEventListener("open", () => {
  lostAt = 0;
  banner("");
  outbox.nudge();
});
stream.addEventListener("lost", () => {
  lostAt ||= Date.now(); // told again by every attempt that fails
  if ($("banner").hidden) banner("Connection lost. Trying again…", Math.max(0, lostAt + LOST_FOR - Date.now()));
});
stream.addEventListener("refused", async () => {
  const response = await fetch("history?order=0&seq=0").catch(() => null);
  if (response?.status === 401) signedOut();
});
window.addEventListener("signed-out", signedOut);

// The cookie is not valid (any more): the page asks for it, or gives a new one. Once; a browser may refuse cookies.
function signedOut() {
  const last = Number(sessionStorage.getItem("bridge-reloaded") ?? 0);
  if (Date.now() - last < 10_000) {
    banner("This page needs cookies to know your conversation.");
    return;
  }
  sessionStorage.setItem("bridge-reloaded", String(Date.now()));
  location.reload();
}

// ---------------------------------------------------------------- what the person does

function send(text, files) {
  outbox.add(text, files);
  scrollToEnd();
  composer.focus();
}

composer.addEventListener("send", ({ detail }) => send(detail.text, detail.files));
composer.addEventListener("problem", ({ detail }) => {
  banner(detail);
  setTimeout(() => banner(""), 4000);
});
outbox.addEventListener("edit", ({ detail }) => composer.write(detail.text, detail.files));
$("new").addEventListener("click", () => send("/new", []));
for (const button of document.querySelectorAll(".suggestion")) {
  button.addEventListener("click", () => send(button.textContent, []));
}

async function press(controls, action, turn, value = "") {
  for (const control of controls) control.disabled = true;
  const body = JSON.stringify({ id: newId(), action, turn, value });
  let answer;
  for (let attempt = 0; attempt < PRESS_TRIES; attempt += 1) {
    answer = await post("presses", body);
    if (answer.ok || answer.refused) break;
    await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
  }
  const stays = answer.ok && answer.accepted !== "ignored" && action !== "f";
  if (!stays) for (const control of controls) control.disabled = false;
  if (!answer.ok) {
    banner(answer.error);
    setTimeout(() => banner(""), 4000);
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.press) {
    const { press: action, turn, value } = button.dataset;
    const isTakenBack = action === "f" && button.getAttribute("aria-pressed") === "true";
    const group = action === "a" ? button.closest(".question").querySelectorAll("button, input") : [button];
    if (action === "a") button.classList.add("chosen");
    await press(group, action, turn, isTakenBack ? "" : value);
    if (action === "a" || action === "r") composer.focus();
  } else if (button.matches(".copy")) {
    await copy(button.closest(".code").querySelector("code").innerText);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } else if (button.matches(".copy-answer")) {
    const blocks = button.closest(".entry").querySelectorAll('.piece[data-key^="b"]');
    await copy([...blocks].map(textOf).join("\n\n"));
    $("announce").textContent = "Copied.";
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest(".free-text");
  if (!form) return;
  event.preventDefault();
  const value = form.elements.answer.value.trim();
  if (value) press(form.closest(".question").querySelectorAll("button, input"), "a", form.dataset.turn, value);
  composer.focus();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  const live = timeline.live;
  if (!live) return;
  event.preventDefault();
  const button = document.querySelector(`.stop[data-turn="${live.id}"]`);
  if (!button?.disabled) press(button ? [button] : [], "s", live.id);
});

$("earlier").addEventListener("click", async () => {
  const first = timeline.first;
  if (!first) return;
  $("earlier").disabled = true;
  try {
    const response = await fetch(`history?order=${first.order}&seq=${first.seq}`);
    if (!response.ok) throw new Error(response.statusText);
    const { entries, earlier } = await response.json();
    const distance = scroller.scrollHeight - scroller.scrollTop;
    follows = false;
    timeline.add(entries);
    scroller.scrollTop = scroller.scrollHeight - distance; // what is read stays where it is
    $("earlier").hidden = !earlier;
  } catch {
    banner("Earlier messages cannot be read now.");
    setTimeout(() => banner(""), 4000);
  } finally {
    $("earlier").disabled = false;
  }
});

// ---------------------------------------------------------------- copying

function textOf(block) {
  const code = block.querySelector(".code code");
  return code ? code.innerText : block.innerText;
}

async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // The clipboard is closed to pages that did not come over TLS.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

stream.start();
