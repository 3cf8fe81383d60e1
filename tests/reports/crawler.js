// What of a page breaks a rule, as texts that name the offender. Run in the page, which may be at any width.
async () => {
  const found = {};
  const report = (rule, ...words) => (found[rule] ??= []).push(words.join(" | ").slice(0, 300));
  const clean = (text) => text.replace(/\s+/g, " ").trim();
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const isShown = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".unseen, .skip");
  const path = (one) => `${one.localName}${one.id ? `#${one.id}` : ""}${one.classList.length ? `.${one.classList[0]}` : ""}`;

  // Model text is nobody's sentence of ours; scripts and styles are none at all.
  const FOREIGN = "script, style, pre, code, textarea, #items-body .item, #items-body table, blockquote, q, .quote, .answers";
  const ownTexts = all("h1, h2, h3, p, li, dt, dd, figcaption, summary, th, td, footer p, button, .banner, .note, label")
    .filter((one) => isShown(one) && !one.closest(FOREIGN));
  const prose = ownTexts.filter((one) => one.matches("p, li, dd, figcaption, .note, .banner") && !one.querySelector("p, li, ul"));
  const sentencesOf = (one) => clean(one.innerText).split(/(?<=[.!?])\s+(?=[\p{Lu}\d“#])/u).filter(Boolean);

  // --- A label stands for one thing
  const named = new Map();
  for (const one of all("[title]")) {
    if (one.closest("th, button, summary, #items-body, figure svg") || !isShown(one)) continue;
    const [text, title] = [clean(one.textContent), clean(one.title)];
    if (!text || text.length > 80 || !/^\S+$/.test(title)) continue; // names have no blanks; meanings have
    if (!named.has(text)) named.set(text, new Set());
    named.get(text).add(title);
  }
  for (const [text, titles] of named) if (titles.size > 1) report("one label, two things", text, ...titles);
  for (const axis of all("figure svg .role-axis-label, figure svg .role-legend-label")) {
    const labels = all("text", axis).map((one) => one.textContent).filter((text) => /\p{L}/u.test(text));
    const twice = labels.filter((text, at) => labels.indexOf(text) !== at);
    for (const text of new Set(twice)) report("one label, two things", axis.closest("figure").id, text);
  }

  // --- No text is cut without a tooltip
  const hasTooltip = (one) => one.closest("[title]") !== null || one.querySelector("[title]") !== null;
  for (const one of all("body *")) {
    if (one.closest("svg, script, style, .unseen, .skip, nav ul, #items-body pre") || !one.childNodes.length || !isShown(one)) continue;
    const style = getComputedStyle(one);
    const hides = ["hidden", "clip"].includes(style.overflowX) && one.scrollWidth > one.clientWidth + 1;
    const clamps = ["hidden", "clip"].includes(style.overflowY) && one.scrollHeight > one.clientHeight + 3;
    if ((hides || clamps) && one.innerText.trim() && !one.querySelector("svg, canvas") && !hasTooltip(one)) {
      report("cut without a tooltip", path(one), clean(one.innerText).slice(0, 60));
    }
  }
  for (const one of ownTexts) {
    if (!one.children.length && /\S…$/.test(clean(one.innerText)) && !one.matches("button, summary") && !hasTooltip(one)) {
      report("cut without a tooltip", path(one), clean(one.innerText));
    }
  }
  for (const text of all("figure svg text")) {
    if (!text.textContent || text.closest("[display='none']")) continue;
    const svg = text.closest("svg").getBoundingClientRect();
    const box = text.getBoundingClientRect();
    if (!box.width || Number(getComputedStyle(text).opacity) === 0) continue;
    const out = box.left < svg.left - 2 || box.right > svg.right + 2 || box.top < svg.top - 2 || box.bottom > svg.bottom + 2;
    const dots = /…$/.test(text.textContent) && !text.closest("g[title], [aria-label]") && !text.querySelector("title");
    if (out || dots) report("cut without a tooltip", text.closest("figure").id, out ? "beyond the picture" : "ends in …", text.textContent);
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 1) report("cut without a tooltip", `the page is ${wide} px wider than the window`);

  // --- No table hides a column without a sign
  const isSign = (style) => [style.backgroundImage, style.maskImage].some((image) => /gradient/.test(image)) || style.boxShadow !== "none";
  for (const table of all("table")) {
    if (!isShown(table)) continue;
    for (let one = table.parentElement; one && one !== document.body; one = one.parentElement) {
      if (!/auto|scroll|hidden|clip/.test(getComputedStyle(one).overflowX) || one.scrollWidth <= one.clientWidth + 1) continue;
      const around = [one, one.parentElement];
      const styles = around.flatMap((each) => [null, "::before", "::after"].map((part) => getComputedStyle(each, part)));
      if (!styles.some(isSign)) report("hides a column", table.dataset.table ?? path(table), `${one.scrollWidth - one.clientWidth} px`);
    }
  }

  // --- Sentences
  const LONGEST = 200;
  const PHRASES = [
    /\b(?:not )?surely\b/i, /\bare sure\b/i, /\bone to expect\b/i, /\bevery two\b/i, /\beach two of\b/i, /\bwho(?:m| judges whom)\b/i,
    /\b(?:told|tells)\b/i, /\bunasked\b/i, /\bwas asked\b/i, /\bstands? behind\b/i, /\bwhat stands\b/i, /\bowed\b/i, /\banew\b/i,
    /\bagain and again\b/i, /\bof one's own\b/i, /\bdatapoints?\b/i, /\d \d* ?%|\d %/, /\bscores (?:0\.\d+) higher\b/i,
    /\bbeyond chance\b/i, /\bnobody can\b/i, /\btake part\b/i, /\bwhat is left of\b/i, /\bof which this holds\b/i, /\bmade up\b/i,
    /\bbeing the best of\b/i, /\bgained nothing\b/i, /\bis not there\b/i,
  ];
  // Points have one digit behind the point; a share of 1 has two or more. Dollars are neither.
  const UNIT = /(?<![$\d.,])(?<![κρτα²Rp] ?[=<≥≤] ?|κ |κ of )\b0\.\d{2,}\b/;
  const ABSOLUTE = /(?<![\w:/.})\]-])\/(?:[\w.@+-]+\/)+[\w.@+-]+|\b[A-Z]:\\\w/;
  for (const one of prose) {
    for (const said of sentencesOf(one)) {
      if (said.length > LONGEST) report("a sentence above 200 characters", said.length, said);
    }
  }
  for (const one of ownTexts) {
    const text = clean(one.matches("td, th") ? one.textContent : one.innerText);
    for (const phrase of PHRASES) if (phrase.test(text)) report("a phrase of the left column", text.match(phrase)[0], text);
  }
  for (const one of all(".said, figcaption, .banner")) {
    if (isShown(one) && !one.closest(FOREIGN)) {
      const text = clean(one.innerText);
      if (UNIT.test(text) && !/κ|Eρ²|τ|variance|correlation/.test(text)) report("another unit than points", text.match(UNIT)[0], text);
    }
  }
  const attributes = all("[title], [aria-label]").flatMap((one) => [one.title, one.ariaLabel ?? ""]);
  for (const text of [document.title, ...ownTexts.map((one) => clean(one.innerText ?? "")), ...attributes]) {
    if (ABSOLUTE.test(text)) report("an absolute path", text.match(ABSOLUTE)[0], text);
  }

  // --- Every figure of a sentence leads to the row it comes from
  const figures = (text) => text.match(/\d[\d,]*(?:\.\d+)?/g) ?? [];
  const digits = (text) => clean(text).replaceAll(",", "");
  const held = new Map();
  // A link that chooses rows is followed.
  const follow = async (hash) => {
    location.hash = hash;
    held.clear();
    await new Promise((then) => setTimeout(then, 300));
  };
  const holds = (target, figure) => {
    if (!held.has(target)) held.set(target, new Set(figures(digits(all("th, td, dd, p", target).map((one) => one.textContent).join(" ")))));
    return held.get(target).has(figure);
  };
  // A step is what a checkpoint is called: it is no figure of it.
  const STEPS = /\bsteps? \d+(?:\s*(?:–|,|and)\s*\d+)*/g;
  for (const said of all(".said")) {
    if (!isShown(said)) continue;
    for (const link of all('a[href^="#"]', said)) {
      const anchor = link.getAttribute("href").slice(1).split("?")[0];
      const target = document.getElementById(anchor);
      if (target === null) report("a figure that leads nowhere", `#${anchor}`, clean(said.innerText));
      else if (anchor !== "items") {
        const chooses = link.hash.includes("?");
        if (chooses) await follow(link.hash);
        const absent = figures(digits(link.textContent)).filter((figure) => !holds(target, figure));
        if (absent.length) report("a figure that its target lacks", `#${anchor}`, absent.join(" "), clean(said.innerText));
        if (chooses) await follow("");
      }
    }
    const unlinked = [...said.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE).map((one) => one.textContent).join(" ");
    const figured = unlinked.replace(STEPS, "");
    const bare = said.closest("#lead") ? (figured.match(/(?<![\w./:-])[±$−-]?\d[\d,.]*(?![\w/-]|\.\d)/g) ?? []) : [];
    if (bare.length) report("a figure without a link", bare.join(" "), clean(said.innerText));
  }

  // --- Every mark of a chart is reached by keys
  const placeOf = (one) => one.__data__?.datum?.["place read"];
  const SYMBOLS = "svg .mark-symbol.role-mark > *";
  for (const place of all("figure[data-picture] .drawing")) {
    const figure = place.closest("figure");
    if (!place.querySelector("svg")) continue; // above 1,500 marks a canvas; test_keys_in_browser presses keys
    const drawn = all(place.querySelector(SYMBOLS) ? SYMBOLS : "svg .role-mark > *", place).map(placeOf);
    const wanted = new Set(drawn.filter((at) => at !== undefined));
    const press = (key) => place.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
    const reached = new Set();
    press("Home");
    for (let step = 0; place.tabIndex === 0 && step <= wanted.size; step += 1, press("ArrowRight")) {
      for (const one of all(".at", place)) reached.add(placeOf(one));
    }
    press("Escape");
    const lost = [...wanted].filter((at) => !reached.has(at));
    if (lost.length || !wanted.size) report("a mark that no key reaches", figure.id, `${lost.length} of ${wanted.size}`);
  }

  // --- Three sentences at most before the first picture
  const picture = document.querySelector("main figure[data-picture], main .drawing, main svg");
  if (picture !== null) {
    const before = all("main p, main li").filter((one) => isShown(one) && !one.closest(".banner, [role=note], .filters, nav")
      && one.compareDocumentPosition(picture) & Node.DOCUMENT_POSITION_FOLLOWING);
    const said = before.flatMap(sentencesOf);
    if (said.length > 3) report("more than three sentences before the first picture", said.length, said[3]);
  }
  return found;
}
