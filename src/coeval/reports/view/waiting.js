// Ask until the report is there, and show it in place of this page.

(() => {
  "use strict";

  const EVERY_MS = 2000;

  async function look() {
    const answer = await fetch(location.pathname).catch(() => null); // the server may have ended, and come again
    if (answer?.status === 200) location.reload();
    else setTimeout(look, EVERY_MS);
  }

  setTimeout(look, EVERY_MS);
})();
