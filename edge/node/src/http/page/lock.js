// Asks for the token, once, where this manager wants one; nothing else is shown before.

import { setToken, whenLocked } from "./api.js";
import { byId, setText } from "./dom.js";

/** `onToken()`: there is a token to try. */
export function startLock(onToken) {
  whenLocked(lock);
  byId("lock-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("lock-field").value.trim();
    // What cannot be sent in a header cannot be the token either.
    if (!/^[!-~]+$/.test(given)) {
      showError("a token has no spaces, and no letters beyond ASCII");
      return;
    }
    showError(null);
    setToken(given);
    onToken();
  });
}

/** The cluster is shown: the token was taken. */
export function unlock() {
  if (byId("lock").hidden) {
    return;
  }
  byId("lock").hidden = true;
  byId("lock-field").value = "";
  document.body.classList.remove("locked");
  byId("main").focus();
}

/** `sentence`: why the token that was given will not do; null: there was none. */
function lock(sentence) {
  document.body.classList.add("locked");
  byId("lock").hidden = false;
  byId("ask").close();
  showError(sentence);
  byId("lock-field").value = "";
  byId("lock-field").focus();
}

function showError(text) {
  byId("lock-error").hidden = text === null;
  setText(byId("lock-error"), text ?? "");
}
