// One request that changes something. Never throws.
//
// `ok`: taken. `refused`: it will never be taken as it is, `error` says why. Neither: try again later.

export async function post(path, body) {
  let response;
  try {
    response = await fetch(path, {
      method: "POST",
      body,
      headers: { "X-Channel-Bridge": "1" },
      credentials: "same-origin",
    });
  } catch {
    return { ok: false, refused: false, error: "The bridge cannot be reached." };
  }
  let answer = {};
  try {
    answer = await response.json();
  } catch {
    // Something in between answered.
  }
  const error = answer.error ?? `The bridge answered ${response.status}.`;
  if (response.status === 401) window.dispatchEvent(new CustomEvent("signed-out"));
  if (response.ok) return { ok: true, refused: false, accepted: answer.accepted, error: "" };
  const isFinal = response.status >= 400 && response.status < 500 && ![401, 408, 425, 429].includes(response.status);
  return { ok: false, refused: isFinal, error };
}
