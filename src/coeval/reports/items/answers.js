// One item whole: prompt, reference, answers side by side with differences marked, judges' scores and words.
// Every text came from a model or a file: it becomes text nodes, and nothing else.

(() => {
  "use strict";

  const LONGEST = 20000;
  const MOST_WORDS = 4000;
  // Below this share of common words most of both texts would be marked, and what they share is "the" and "a".
  const LEAST_ALIKE = 0.5;
  const MISSING = "–";
  // What moves a cursor, turns a line around or hides: written out, as the command line does.
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(key, value);
      else element.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === "") continue;
      element.append(typeof child === "string" ? shown(child) : child);
    }
    return element;
  }

  function shown(text) {
    const whole = text.replace(/\r\n/g, "\n");
    if (!UNSEEN.test(whole)) return document.createTextNode(whole);
    const parts = document.createDocumentFragment();
    for (const piece of whole.split(new RegExp(`(${UNSEEN.source})`, "g"))) {
      if (piece.length === 1 && UNSEEN.test(piece)) {
        const code = piece.codePointAt(0);
        const written = code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
        const sign = document.createElement("span");
        sign.className = "unshown";
        sign.textContent = written;
        parts.append(sign);
      } else if (piece) parts.append(piece);
    }
    return parts;
  }

  // Scores in points, and what a benchmark scores on a scale of its own as it is.
  const score = (value, shares = window.coevalItems.shares) => (value === null || value === undefined ? MISSING : shares === false ? fixed(value, 2) : points(value));

  // A text in a box of its own, cut where it is very long until somebody asks for the rest.
  function textBox(text, marked = null) {
    const box = make("div", { class: "text", dir: "auto" });
    const fill = (upTo) => {
      const cut = text.length > upTo ? text.slice(0, upTo) : text;
      box.replaceChildren(marked && cut.length === text.length ? marked() : shown(cut));
    };
    fill(LONGEST);
    if (text.length <= LONGEST) return box;
    const more = make("button", { type: "button", class: "more" }, `Show all ${text.length.toLocaleString("en-US")} characters`);
    more.addEventListener("click", () => {
      fill(Infinity);
      more.remove();
    });
    return [box, more];
  }

  // Words and what separates them; of languages without blanks each sign is a word.
  const words = (text) => text.match(/\s+|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

  // For each word of `two`, whether a longest common subsequence with `one` holds it (Myers 1986); null: too long.
  function common(one, two) {
    if (one.length > MOST_WORDS || two.length > MOST_WORDS) return null;
    const kept = new Uint8Array(two.length);
    let begin = 0;
    while (begin < one.length && begin < two.length && one[begin] === two[begin]) kept[begin++] = 1;
    let ends = 0;
    while (ends < one.length - begin && ends < two.length - begin && one[one.length - 1 - ends] === two[two.length - 1 - ends]) {
      ends += 1;
      kept[two.length - ends] = 1;
    }
    const a = one.slice(begin, one.length - ends);
    const b = two.slice(begin, two.length - ends);
    const most = a.length + b.length;
    const furthest = new Int32Array(2 * most + 2);
    const trace = [];
    search: for (let d = 0; d <= most; d += 1) {
      trace.push(furthest.slice(most - d, most + d + 2));
      for (let k = -d; k <= d; k += 2) {
        const down = k === -d || (k !== d && furthest[most + k - 1] < furthest[most + k + 1]);
        let x = down ? furthest[most + k + 1] : furthest[most + k - 1] + 1;
        while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
        furthest[most + k] = x;
        if (x >= a.length && x - k >= b.length) break search;
      }
      if (d > 1500) return null;
    }
    let x = a.length;
    let y = b.length;
    for (let d = trace.length - 1; d >= 0 && (x > 0 || y > 0); d -= 1) {
      const at = (k) => trace[d][d + k];
      const k = x - y;
      const down = d > 0 && (k === -d || (k !== d && at(k - 1) < at(k + 1)));
      const before = d === 0 ? 0 : down ? k + 1 : k - 1;
      const fromX = d === 0 ? 0 : at(before);
      const fromY = d === 0 ? 0 : fromX - before;
      while (x > fromX && y > fromY && x > 0 && y > 0) {
        x -= 1;
        y -= 1;
        kept[begin + y] = 1;
      }
      x = fromX;
      y = fromY;
    }
    return kept;
  }

  function marked(text, base) {
    const mine = words(text);
    const kept = common(words(base), mine);
    if (kept === null) return null;
    for (let at = 1; at + 1 < mine.length; at += 1) {
      if (kept[at] && !kept[at - 1] && !kept[at + 1] && !mine[at].trim()) kept[at] = 0; // blanks between marked words
    }
    return () => {
      const parts = document.createDocumentFragment();
      for (let at = 0; at < mine.length; ) {
        let end = at;
        while (end < mine.length && kept[end] === kept[at]) end += 1;
        const piece = mine.slice(at, end).join("");
        parts.append(kept[at] ? shown(piece) : make("mark", {}, piece));
        at = end;
      }
      return parts;
    };
  }

  function level(value, worth) {
    if (value === null || value === undefined) return make("span", { class: "level missing" }, "missing");
    return make("span", { class: `level ${worth === undefined ? ({ High: "high", Medium: "medium", Low: "low" }[value] ?? "") : worth > 0.75 ? "high" : worth < 0.25 ? "low" : "medium"}` }, String(value));
  }

  function value(of) {
    return typeof of === "object" ? JSON.stringify(of) : typeof of === "number" && !Number.isInteger(of) ? String(Number(of.toPrecision(4))) : String(of);
  }

  // Scores of a run's judges: a row for each factor, a column for each judge.
  function scoreTable(judgments) {
    const factors = [...new Set(judgments.flatMap((one) => Object.keys(one.scores ?? {})))];
    if (!factors.length) return null;
    return make(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "scores by judge" },
      make(
        "table",
        { class: "verdicts" },
        make("thead", {}, make("tr", {}, make("td"), judgments.map((one) => make("th", { scope: "col", title: wholeName(one.judge) }, called(one.judge))))),
        make(
          "tbody",
          {},
          factors.map((factor) =>
            make(
              "tr",
              {},
              make("th", { scope: "row" }, factor),
              judgments.map((one) => make("td", {}, factor in (one.scores ?? {}) ? level(one.scores[factor], one.values?.[factor]) : MISSING)),
            ),
          ),
        ),
      ),
    );
  }

  function judgmentWords(one) {
    const reasons = Object.entries(one.reasons ?? {});
    const told = [...Object.entries(one.verdict ?? {}).filter(([name]) => name !== "repaired"), ...reasons];
    const head = [one.what ? `${one.what} · ` : "", called(one.judge)];
    const said = [
      told.length ? make("dl", { class: "told" }, told.map(([name, of]) => [make("dt", {}, name), make("dd", {}, value(of))])) : null,
      one.error ? failure(one.error) : one.failed ? make("p", { class: "failure" }, "failed") : null,
    ];
    const reply = one.words && !onlyScores(one) ? make("details", {}, make("summary", {}, `${called(one.judge)}’s words`), textBox(one.words)) : null;
    if (!told.length && !one.what) return [...said, reply];
    return make("div", { class: "judgment" }, make("h5", { title: wholeName(one.judge) }, head.join("")), said, reply);
  }

  // Whether what a judge said is its scores and reasons and nothing else.
  function onlyScores(one) {
    try {
      const said = JSON.parse(one.words);
      const names = Object.keys(said ?? {});
      return names.length > 0 && names.length === Object.keys(one.scores ?? {}).length && names.every((name) => name in one.scores);
    } catch {
      return false; // words, then
    }
  }

  const failure = (error) => make("p", { class: "failure" }, `failed (${error.kind}): ${error.message}`);

  function instructions(list) {
    const sign = (followed) => (followed === null || followed === undefined ? MISSING : followed ? "followed" : "not followed");
    const cell = (followed) => make("td", {}, make("span", { class: `level ${followed ? "high" : followed === false ? "low" : ""}` }, sign(followed)));
    return make(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "instructions" },
      make(
        "table",
        { class: "verdicts" },
        make("thead", {}, make("tr", {}, ["instruction", "strict", "loose"].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, list.map((one) => make("tr", {}, make("th", { scope: "row" }, one.instruction), cell(one.strict), cell(one.loose)))),
      ),
    );
  }

  function figures(answer) {
    const parts = [];
    if (answer.input_tokens !== undefined) parts.push(`${answer.input_tokens.toLocaleString("en-US")} → ${(answer.output_tokens ?? 0).toLocaleString("en-US")} tokens`);
    if (answer.cost_usd !== undefined && answer.cost_usd !== null) parts.push(`$${Number(answer.cost_usd.toPrecision(2))}`);
    if (answer.latency_s !== undefined && answer.latency_s !== null) parts.push(`${answer.latency_s.toFixed(1)} s`);
    return parts.join(" · ");
  }

  // Names as people read them; the whole ones stand in tooltips.
  let shortNames = {};
  const called = (name) => (Object.hasOwn(shortNames, name) ? shortNames[name] : name);
  const wholeName = (name) => (called(name) === name ? null : name);

  const isText = (text) => text !== null && text !== undefined && text !== "";
  const nameOf = ({ answer, where }, shown = called) => [where ? `${where}: ` : "", shown(answer.student), answer.sample ? ` (sample ${answer.sample + 1})` : ""].join("");
  const fullName = (one) => nameOf(one, (name) => name);

  // The share of the words of two texts that they have in common, in their order; null: too long to tell.
  function likeness(one, two) {
    const [mine, others] = [words(one), words(two)];
    const kept = common(mine, others);
    const count = (of) => of.filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
    return kept && (2 * count(others.filter((_, at) => kept[at]))) / Math.max(1, count(mine) + count(others));
  }

  // What is read beside what is marked in it, and how that is said.
  function differences(text, other) {
    if (!isText(text) || !isText(other)) return { said: "" };
    const share = likeness(text, other);
    if (share === null) return { said: "Differences are not marked: the texts are too long to compare." };
    const percent = `${Math.round(100 * share)}% of their words`;
    if (share < LEAST_ALIKE) return { said: `Differences are not marked: the texts share only ${percent}.` };
    const marks = [marked(text, other), marked(other, text)];
    return marks.includes(null) ? { said: "Differences are not marked: the texts are too long to compare." } : { marks, said: `Marked: words that the other text lacks; the two share ${percent}.` };
  }

  function answerCard(one, diff) {
    const { answer } = one;
    const text = answer.text ?? null;
    return make(
      "article",
      { class: "answer", "aria-label": `answer of ${nameOf(one)}` },
      make("header", {}, make("h4", { title: wholeName(answer.student) }, make("bdi", {}, nameOf(one))), make("span", { class: "score" }, score(answer.score))),
      answer.truncated ? make("p", { class: "note" }, "cut off") : null,
      answer.error ? failure(answer.error) : answer.failed ? make("p", { class: "failure" }, "failed") : null,
      answer.reasoning ? make("details", {}, make("summary", {}, "reasoning"), textBox(answer.reasoning)) : null,
      text === null ? null : text === "" ? make("p", { class: "note" }, "(empty)") : textBox(text, diff),
      answer.instructions?.length ? instructions(answer.instructions) : null,
      scoreTable(answer.judgments ?? []),
      labels(answer.labels),
      metrics(answer.metrics),
      make("div", { class: "said" }, (answer.judgments ?? []).map(judgmentWords)),
      make("p", { class: "note" }, figures(answer)),
    );
  }

  function labels(found) {
    const names = Object.entries(found ?? {});
    if (!names.length) return null;
    return make(
      "ul",
      { class: "labels" },
      names.map(([name, label]) =>
        make("li", {}, `${name}: expected ${label.expected}, given ${label.predicted ?? "none of the labels"} `, make("span", { class: `level ${label.match ? "high" : "low"}` }, label.match ? "right" : "wrong")),
      ),
    );
  }

  function metrics(found) {
    const names = Object.entries(found ?? {});
    return names.length ? make("dl", { class: "told" }, names.map(([name, of]) => [make("dt", {}, name), make("dd", {}, score(of, window.coevalItems.shares !== false && Math.abs(of) <= 1))])) : null;
  }

  // `sets`: [{where, detail}], the first of which is the item itself, others the same item of other folders. Two
  // answers stand side by side: that of the student `of`, or the best, and that of `beside`, or the next. `turned`
  // hears whose answer is read.
  function itemView(sets, { of = null, beside = null, turned = () => {}, short = {} } = {}) {
    shortNames = short;
    const [{ detail }] = sets;
    const all = sets.flatMap((one) => one.detail.answers.map((answer) => ({ answer, where: sets.length > 1 ? one.where : "" })));
    all.sort((one, other) => (other.answer.score ?? -1) - (one.answer.score ?? -1));
    const reference = isText(detail.reference) ? { text: detail.reference } : null;
    const others = [...all.map((one) => [nameOf(one), one]), ...(reference ? [["the reference", reference]] : []), ["nothing", null]];
    const find = (name) => all.findIndex((one) => fullName(one) === name || one.answer.student === name);
    let at = Math.max(0, find(of));
    const asked = all[find(beside)] ?? null;
    let second = all.length && (asked && asked !== all[at] ? asked : (all.find((one) => one !== all[at]) ?? reference));
    const answers = make("div", { class: "answers" });
    const said = make("span", { role: "status" });
    const select = make("select", { "aria-label": "beside it" }, others.map(([name], nth) => make("option", { value: nth }, name)));
    const chips = all.map((one, nth) =>
      make("button", { type: "button", title: wholeName(one.answer.student), click: () => turn(nth) }, make("bdi", {}, nameOf(one)), make("b", {}, ` ${one.answer.failed ? "failed" : score(one.answer.score)}`)),
    );
    const draw = () => {
      const diff = second ? differences(all[at].answer.text, second.answer ? second.answer.text : second.text) : { said: "" };
      said.textContent = diff.said;
      select.value = String(others.findIndex(([, one]) => one === (second || null)));
      chips.forEach((chip, nth) => chip.setAttribute("aria-pressed", String(nth === at)));
      const side = second?.answer ? answerCard(second, diff.marks?.[1]) : second ? make("section", { class: "answer", "aria-label": "reference" }, make("h4", {}, "Reference"), textBox(second.text, diff.marks?.[1])) : null;
      answers.replaceChildren(answerCard(all[at], diff.marks?.[0]), ...(side ? [side] : []));
    };
    // What is read beside itself gives way to what was read before.
    const turn = (nth) => {
      if (all[nth] === second) second = all[at];
      at = nth;
      draw();
      turned(fullName(all[at]));
    };
    select.addEventListener("change", () => {
      const [, one] = others[Number(select.value)];
      if (one === all[at] && second?.answer) at = all.indexOf(second);
      second = one === all[at] ? null : one;
      draw();
    });
    if (all.length) draw();
    const facts = [detail.task, detail.teacher ? `teacher ${called(detail.teacher)}` : "", detail.source ? `source ${detail.source}` : "", ...Object.entries({ ...detail.attributes, ...detail.nuance }).map(([name, value_]) => `${name} = ${value_}`)];
    const element = make(
      "div",
      { class: "whole" },
      make("p", { class: "facts" }, facts.filter(Boolean).map((fact) => make("span", {}, make("bdi", {}, fact)))),
      detail.error ? failure(detail.error) : null,
      make(
        "div",
        { class: "asked" },
        detail.prompt === undefined || detail.prompt === null ? null : make("section", { "aria-label": "prompt" }, make("h4", {}, "Prompt"), textBox(detail.prompt)),
        reference && all.length < 2 ? null : isText(detail.reference) ? make("details", {}, make("summary", {}, "Reference"), textBox(detail.reference)) : null,
        detail.evidence?.length ? make("details", {}, make("summary", {}, "Evidence"), ...detail.evidence.map((quote) => textBox(quote))) : null,
      ),
      all.length ? make("div", { class: "chosen-answer", role: "group", "aria-label": "answers" }, chips) : make("p", { class: "note" }, "No answers to this item yet."),
      all.length ? make("p", { class: "compared" }, make("label", {}, "Compare with ", select), " ", said) : null,
      answers,
    );
    return { element, next: (step) => all.length && turn((at + step + all.length) % all.length) };
  }

  window.coevalItems = { ...window.coevalItems, make, shown, score, itemView, common, words };
})();
