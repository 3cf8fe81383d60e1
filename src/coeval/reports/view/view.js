// The pages of `coeval view`: what a folder holds, live, and its items.

(() => {
  "use strict";

  const { make, asked, served } = window.coevalItems;
  const EVERY_MS = 2000;
  const PHASES = { attribute_mapping: "attributes", rubric_mapping: "rubric", data_generation: "items", response_collection: "answers", evaluation: "judgments" };
  const root = document.documentElement;
  const place = (id) => document.getElementById(id);
  const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en-US"));

  function shade() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }
  place("theme").addEventListener("click", shade);

  // A table; cells are texts or elements, the first column's are names, and so are those of the `texts` after it.
  function table(label, heads, rows, texts = 0) {
    return make(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, heads.map((head, at) => make(head ? "th" : "td", { scope: head ? "col" : null, class: at > texts ? "k-score" : "k-text" }, head)))),
        make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell, at) => (at ? make("td", { class: at > texts ? "k-score" : "k-text" }, cell) : make("th", { scope: "row", class: "k-text" }, cell)))))),
      ),
    );
  }

  // Replace what is shown only where it differs, so that nothing moves under a pointer.
  const before = new Map();
  function draw(id, told, parts) {
    const text = JSON.stringify(told);
    if (before.get(id) === text) return;
    before.set(id, text);
    place(id).replaceChildren(...parts().flat().filter((part) => part !== null));
  }

  // --- how far it is ----------------------------------------------------------------------------

  function stateOf(told) {
    const state = told.status?.state;
    if (!state) return "";
    return state.status === "running" && state.pid ? `running (process ${state.pid})` : state.status;
  }

  function spentOf(status) {
    const budget = status?.budget?.total;
    if (!budget || (!budget.spent_usd && budget.limit_usd === null && !budget.perhaps_usd)) return "";
    return `${dollars(budget.spent_usd)} spent${budget.perhaps_usd ? `, perhaps ${dollars(budget.perhaps_usd)} more` : ""}${budget.limit_usd === null ? "" : ` of ${dollars(budget.limit_usd)}`}`;
  }

  function phases(status) {
    const rows = Object.entries(status.phases).map(([name, phase]) => {
      const label = PHASES[name] ?? name;
      const figures = [phase.planned === null ? count(phase.good) : `${count(phase.good)} of ${count(phase.planned)}`, phase.failed ? `${count(phase.failed)} failed` : ""].filter(Boolean).join(", ");
      const bar = make("progress", { max: "1", "aria-label": label });
      if (phase.planned) bar.value = Math.min(1, phase.good / phase.planned);
      else if (phase.owed === 0) bar.value = 1;
      else bar.value = 0;
      return [make("bdi", {}, label), bar, make("span", { class: "counted" }, figures)];
    });
    return make("div", { class: "bars" }, rows.flat());
  }

  function status(told) {
    const found = told.status;
    if (!found) return [make("p", { class: "note" }, told.status_error ?? "Loading …")];
    const spend = Object.entries(found.spend);
    return [
      make("p", {}, make("span", { class: "state" }, stateOf(told) || "no process is working there"), [spentOf(found)].filter(Boolean).map((text) => ` · ${text}`)),
      phases(found),
      spend.length
        ? table(
            "time and cost of models",
            ["model", "requests", "input tokens", "output tokens", "cost"],
            spend.map(([model, of]) => [named(model), count(of.requests), count(of.input_tokens), count(of.output_tokens), of.cost_usd === null ? "–" : dollars(of.cost_usd)]),
          )
        : null,
      found.batches.length ? make("p", {}, `${count(found.batches.length)} batch ${found.batches.length === 1 ? "job" : "jobs"} in progress`) : null,
      found.errors.length
        ? make(
            "details",
            { open: found.errors.length < 4 },
            make("summary", {}, "Last errors ", make("span", { class: "count" }, count(found.errors.length))),
            make("ul", { class: "errors" }, [...found.errors].reverse().map((error) => make("li", {}, make("span", { class: "when" }, `${error.at} ${error.kind} `), make("bdi", {}, error.id || error.phase || ""), ` ${error.message.length > 400 ? `${error.message.slice(0, 400)}…` : error.message}`))),
          )
        : null,
    ];
  }

  // --- the answer first -------------------------------------------------------------------------

  const lasting = (seconds) => (seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`);

  // What the scores say, and of a run that goes on how long it will.
  function headline(told) {
    const { pace, status: found } = told;
    const running = Boolean(found?.state?.pid);
    const parts = told.headline.map((text) => make("p", { class: "said" }, text));
    if (running && pace) {
      const rate = `${pace.per_minute.toLocaleString("en-US", { maximumFractionDigits: pace.per_minute < 10 ? 1 : 0 })} records a minute`;
      parts.unshift(make("p", { class: "eta" }, make("b", {}, `About ${lasting(pace.seconds_left)} left`), ` at ${rate}.${told.headline.length ? " Scores so far are provisional:" : ""}`));
    } else if (running && told.headline.length) parts.unshift(make("p", { class: "eta" }, "The run is in progress: scores are provisional."));
    return parts;
  }

  // --- what came of it --------------------------------------------------------------------------

  // Drawn parts of a forest.
  function shape(name, attributes, ...parts) {
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) drawn.setAttribute(key, value);
    drawn.append(...parts);
    return drawn;
  }

  // A forest of students, best first, of what is scored so far, as a report opens with.
  function standings(students) {
    const ordered = students.filter(({ score }) => score !== null);
    const ends = ({ score, low, high }) => [low ?? score, high ?? score];
    const least = 10 * Math.floor(10 * Math.min(...ordered.flatMap(ends)));
    const most = Math.max(10 * Math.ceil(10 * Math.max(...ordered.flatMap(ends))), least + 10);
    const at = (share) => Math.round(((100 * share - least) / (most - least)) * 1e4) / 100;
    const [from, to] = ends(ordered[0]).map(at);
    const number = (text) => make("td", { role: "cell", class: "num" }, text);
    const head = (text, as) => make("th", { role: "columnheader", scope: "col", class: as }, text);
    const axis = make("span", { class: "axis" }, [least, (least + most) / 2, most].map((tick) => make("i", {}, String(tick))));
    const heads = [head("student"), head("score, in points", "num"), head(axis, "plot"), head("items", "num"), head("failed", "num")];
    const lines = ordered.map((one) => {
      const [low, high] = ends(one).map(at);
      const drawn = shape(
        "svg", { "aria-hidden": "true", class: `c${students.indexOf(one) % 8}` },
        shape("rect", { x: `${from}%`, width: `${to - from}%`, height: "100%" }),
        shape("line", { x1: `${low}%`, x2: `${high}%`, y1: "50%", y2: "50%" }),
        shape("circle", { cx: `${at(one.score)}%`, cy: "50%", r: "5" }),
      );
      const link = `#items?${new URLSearchParams({ student: one.student, order: "worst" })}`;
      const name = make("th", { role: "rowheader", scope: "row", title: plain(one.student) }, make("a", { href: link }, shownText(plain(one.student))));
      return make("tr", { role: "row" }, name, number(scored(one.score, one.low, one.high)), make("td", { role: "cell", class: "plot" }, drawn), number(count(one.n)), number(count(one.failed)));
    });
    return make("table", { class: "forest", role: "table", "aria-label": "students" }, make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, heads)), make("tbody", { role: "rowgroup" }, lines));
  }

  const scored = (mean, low, high) => (mean === null ? "–" : figureText("points", mean, low, high));

  function results(told) {
    const found = told.results;
    if (!found) return [make("p", { class: "note" }, told.error ?? "Loading …")];
    const overall = found.students.filter((one) => one.task === null);
    const parts = [];
    if (overall.some((one) => one.score !== null)) {
      parts.push(standings(overall));
      const without = overall.filter((one) => one.score === null);
      if (without.length) parts.push(make("p", { class: "note" }, "No score yet: ", without.map(({ student }, at) => [at ? ", " : "", named(student)])));
    }
    if (found.people?.length) {
      parts.push(table("by judges and by people, in points", ["student", "judged", "human scale", "labels"], found.people.map((one) => [named(one.student), scored(one.judged, one.low, one.high), scored(one.people, one.people_low, one.people_high), count(one.labels)])));
    }
    if (found.labels.length) {
      parts.push(table("labels", ["student", "task", "label", "accuracy", "right", "failed"], found.labels.map((one) => [named(one.student), make("bdi", {}, one.task), make("bdi", {}, one.attribute), scored(one.accuracy, one.low, one.high), `${count(one.correct)} of ${count(one.n)}`, count(one.failed)]), 2));
    }
    if (found.metrics.length) {
      parts.push(table("metrics", ["model", "task", "metric", "samples", "value", "n"], found.metrics.map((one) => [named(one.model), make("bdi", {}, one.task), make("bdi", {}, one.metric), count(one.samples), scored(one.value, one.low, one.high), count(one.n)]), 2));
    }
    if (!parts.length) parts.push(make("p", { class: "note" }, "Nothing has been scored yet."));
    else parts.push(make("p", { class: "note" }, `[low, high] is the 95% interval of a mean over items.${told.status?.state?.pid ? " The run goes on, and so do these." : ""}`));
    for (const note of found.notes) parts.push(make("p", { class: "note" }, note));
    if (told.error) parts.push(make("p", { class: "trouble" }, told.error));
    return parts;
  }

  let names = new Map(); // short names of models, by whole ones
  const named = (name) => make("bdi", { title: names.has(name) ? name : null }, names.get(name) ?? name);

  // --- a folder ---------------------------------------------------------------------------------

  const mine = Number(location.pathname.split("/")[2]);
  let list = null;
  let source = null;
  let generation = 0;

  function besideForm(folders) {
    const others = folders.filter((one) => one.number !== mine).map((one) => ({ number: one.number, name: one.name, base: `/f/${one.number}/api/` }));
    source.others = others;
    if (!others.length || others.length > 30) return;
    const boxes = others.map((other) => {
      const box = make("input", { type: "checkbox", value: other.number });
      box.addEventListener("change", () => {
        source.beside = [...place("beside").querySelectorAll("input:checked")].map((one) => Number(one.value));
        list.load();
      });
      return make("label", {}, box, " ", make("bdi", {}, other.name));
    });
    place("beside").replaceChildren(make("fieldset", { class: "beside" }, make("legend", {}, "Compare with"), boxes));
  }

  async function folder(told) {
    document.title = `${told.name} – coeval view`;
    draw("title", told.name, () => [make("bdi", { title: told.path }, told.name)]);
    draw("facts", [told.kind, stateOf(told), spentOf(told.status), told.facets?.items], () =>
      [told.kind === "run" ? "run" : "output of eval-framework", stateOf(told), spentOf(told.status), told.facets ? `${count(told.facets.items)} items` : ""].filter(Boolean).map((fact) => make("span", {}, make("bdi", {}, fact))),
    );
    place("banner").hidden = !told.results?.simulated;
    place("banner").textContent = "simulated models: these numbers describe no real model";
    names = new Map(Object.entries(told.short ?? {}));
    for (const [name, short] of names) shortNames.set(name, short);
    const first = [told.headline, told.pace, told.status?.state];
    draw("headline-body", first, () => headline(told));
    place("headline").hidden = !place("headline-body").childElementCount;
    draw("status-body", [told.status, told.status_error], () => status(told));
    draw("results-body", [told.results, told.error], () => results(told));
    if (!told.generation || told.generation === generation) return;
    generation = told.generation;
    if (list === null) {
      source = served(`/f/${mine}/api/`, told.facets);
      source.name = told.name;
      const folders = await asked("/api/folders");
      place("up").hidden = folders.length < 2;
      besideForm(folders);
      list = window.coevalItems.mount(place("items-body"), source);
    } else {
      source.facets = told.facets;
      if (!list.opened) list.load();
    }
  }

  const overview = window.coevalOverview?.({ place, count, dollars, stateOf, scored });

  async function look() {
    const isFolder = document.body.dataset.page === "folder";
    try {
      if (!document.hidden) {
        if (isFolder) await folder(await asked(`/f/${mine}/api/state`));
        else overview(await asked("/api/folders"));
        root.dataset.reached = "yes";
      }
    } catch (error) {
      if (root.dataset.reached !== "no") console.info(`coeval view: ${error.message}`);
      root.dataset.reached = "no";
    }
    setTimeout(look, EVERY_MS);
  }

  look();
})();
