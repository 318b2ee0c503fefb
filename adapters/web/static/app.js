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
let lastTop = 0;
let lastHeight = 0;
const scroller = $("scroller");

function scrollToEnd() {
  follows = true;
  scroller.scrollTop = scroller.scrollHeight;
  $("jump").hidden = true;
  noteScroll();
}

function noteScroll() {
  lastTop = scroller.scrollTop;
  lastHeight = scroller.scrollHeight;
}

const sizes = new ResizeObserver(() => follows && scrollToEnd());
sizes.observe($("content"));
sizes.observe(scroller);
scroller.addEventListener("scroll", () => {
  const isNear = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_THE_END;
  // Only who scrolls up stops following. The end may also be far because more has come since the scroll, and the
  // place may be higher because the content has shrunk.
  const isUp = scroller.scrollTop < lastTop && scroller.scrollHeight >= lastHeight;
  if (isNear || isUp) follows = isNear;
  $("jump").hidden = follows;
  noteScroll();
});
$("jump").addEventListener("click", () => {
  scrollToEnd();
  composer.takeFocusBack();
});

// ---------------------------------------------------------------- what the bridge says

let hasState = false;
let hintIsOver = false;

stream.addEventListener("state", ({ detail: state }) => {
  const isIdle = outbox.isEmpty && !composer.text && !composer.hasFiles;
  if (state.version !== document.body.dataset.version && isIdle) {
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
timeline.addEventListener("unfocused", () => composer.takeFocusBack());
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
  if (phase !== "asking" || !isIdle || !follows) return; // a question out of sight must not be answered by Enter
  const question = entry.element.querySelector(".question");
  if (question?.offsetHeight > scroller.clientHeight) return; // nor one whose beginning is out of sight
  question?.querySelector(".option, input")?.focus({ preventScroll: true });
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

function complain(text) {
  banner(text);
  setTimeout(() => banner(""), 4000);
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
stream.addEventListener("refused", async () => (await isSignedOut()) && signedOut());
window.addEventListener("signed-out", signedOut);

async function isSignedOut() {
  const response = await fetch("history?order=0&seq=0").catch(() => null);
  return response?.status === 401;
}

const SIGNED_IN_WITHIN = 2000; // after signing in elsewhere it takes so long to be noticed here
let signInTimer = 0;

// The cookie is not valid (any more): the page asks for it, or gives a new one. Once; a browser may refuse cookies.
function signedOut() {
  if (outbox.hasFiles || composer.hasFiles) {
    banner("You are signed out. Sign in again in another tab; your files wait here.");
    clearTimeout(signInTimer);
    signInTimer = setTimeout(async () => {
      if (await isSignedOut()) return signedOut();
      if (!lostAt) banner("");
      outbox.nudge();
    }, SIGNED_IN_WITHIN);
    return;
  }
  const last = Number(sessionStorage.getItem("bridge-reloaded") ?? 0);
  if (Date.now() - last < 10_000) {
    banner("This page needs cookies to know your conversation.");
    return;
  }
  sessionStorage.setItem("bridge-reloaded", String(Date.now()));
  location.reload();
}

window.addEventListener("beforeunload", (event) => outbox.hasFiles && event.preventDefault());

// ---------------------------------------------------------------- what the person does

function send(text, files) {
  outbox.add(text, files);
  scrollToEnd();
  composer.focus();
}

composer.addEventListener("send", ({ detail }) => send(detail.text, detail.files));
composer.addEventListener("problem", ({ detail }) => complain(detail));
outbox.addEventListener("edit", ({ detail }) => composer.write(detail.text, detail.files));
$("new").addEventListener("click", () => send("/new", []));
for (const button of document.querySelectorAll(".suggestion")) {
  button.addEventListener("click", () => send(button.textContent, []));
}

// A control at work stays where the focus is; `disabled` would take the focus from it.
const isAtWork = (control) => control?.getAttribute("aria-disabled") === "true";

async function press(controls, action, turn, value = "", typed = false) {
  for (const control of controls) control.setAttribute("aria-disabled", "true");
  const body = JSON.stringify({ id: newId(), action, turn, value, typed });
  let answer;
  for (let attempt = 0; attempt < PRESS_TRIES; attempt += 1) {
    answer = await post("presses", body);
    if (answer.ok || answer.refused) break;
    await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
  }
  const stays = answer.ok && answer.accepted !== "ignored" && action !== "f";
  if (!stays) for (const control of controls) control.removeAttribute("aria-disabled");
  if (!answer.ok) complain(answer.error);
}

function answerQuestion(question, turn, value, typed = false) {
  scrollToEnd();
  composer.takeFocusBack();
  return press(question.querySelectorAll(".option, input"), "a", turn, value, typed);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button || isAtWork(button)) return;
  const { press: action, turn, value } = button.dataset;
  if (action === "a") {
    button.classList.add("chosen");
    answerQuestion(button.closest(".question"), turn, value);
  } else if (action) {
    const isTakenBack = action === "f" && button.getAttribute("aria-pressed") === "true";
    await press([button], action, turn, isTakenBack ? "" : value);
    if (action === "r") composer.takeFocusBack();
  } else if (button.matches(".copy")) {
    copy(button, button.closest(".code").querySelector("code").innerText);
  } else if (button.matches(".copy-answer")) {
    copy(button, button.dataset.source);
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest(".free-text");
  if (!form) return;
  event.preventDefault();
  const field = form.elements.answer;
  const value = field.value.trim();
  if (value && !isAtWork(field)) answerQuestion(form.closest(".question"), form.dataset.turn, value, true);
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  const live = timeline.live;
  if (!live) return;
  event.preventDefault();
  const button = document.querySelector(`.stop[data-turn="${live.id}"]`);
  if (!isAtWork(button)) press(button ? [button] : [], "s", live.id);
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
    complain("Earlier messages cannot be read now.");
  } finally {
    $("earlier").disabled = false;
  }
});

// ---------------------------------------------------------------- copying

async function copy(button, text) {
  if (!(await toClipboard(text))) {
    complain("The browser did not let it be copied.");
    return;
  }
  $("announce").textContent = "Copied.";
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1500);
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The clipboard is closed to pages that did not come over TLS.
  }
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  return isDone;
}

stream.start();
