// Labelling, blind: one factor of one answer at a time, by keys. The server knows what comes next, so a page that
// is loaded again goes on there.

(() => {
  "use strict";

  const { make, asked } = window.coevalItems;
  const place = (id) => document.getElementById(id);
  const root = document.documentElement;
  let state = null;
  let busy = false;

  place("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  const box = (title, text) => [make("h3", {}, title), make("div", { class: "text", dir: "auto" }, text)];

  function draw() {
    const { by, done, total, question } = state;
    place("who").textContent = by;
    place("count").textContent = `${done.toLocaleString("en-US")} of ${total.toLocaleString("en-US")} labelled`;
    place("progress").value = total ? done / total : 1;
    if (question === null) {
      place("question").replaceChildren(make("h2", {}, "All are labelled"), make("p", {}, "Close this page; Ctrl-C ends the command, and coeval analyze calibration shows the results."));
      place("levels").replaceChildren();
      return;
    }
    place("question").replaceChildren(make("h2", {}, make("bdi", {}, question.factor)), make("p", { class: "criterion" }, question.criterion), ...box("Prompt", question.prompt), ...(question.reference ? box("Reference", question.reference) : []), ...box("Answer", question.answer));
    place("levels").replaceChildren(
      ...question.levels.map((level, at) => {
        const key = at < 10 ? String((at + 1) % 10) : "";
        return make("button", { type: "button", click: () => give(at), "aria-keyshortcuts": key || null }, key ? make("kbd", {}, key) : "", " ", make("bdi", {}, level));
      }),
      make("button", { type: "button", click: undo, "aria-keyshortcuts": "u", disabled: done === 0 }, make("kbd", {}, "u"), " undo"),
    );
    window.scrollTo(0, 0);
  }

  async function send(path, body) {
    if (busy) return;
    busy = true;
    try {
      const settings = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
      state = await asked(path, settings);
      place("said").textContent = "";
      draw();
    } catch (error) {
      place("said").textContent = `Not kept: ${error.message}`;
    } finally {
      busy = false;
    }
  }

  const give = (at) => send("/api/label", { id: state.question.id, level: state.question.levels[at] });
  const undo = () => send("/api/undo", {});

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.repeat || state === null) return;
    const at = /^[0-9]$/.test(event.key) ? (Number(event.key) + 9) % 10 : -1;
    if (event.key === "u") undo();
    else if (state.question !== null && at >= 0 && at < state.question.levels.length) give(at);
    else return;
    event.preventDefault();
  });

  send("/api/label");
})();
