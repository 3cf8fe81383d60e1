// The first screen under a filter: its sentences, and the forest of students, as `page.html` writes them.

const SVG = "http://www.w3.org/2000/svg";
const NUMBER = /(?<![\w./:-])[±$−-]?\d[\d,.]*(?:\s\[[^\]]*\])?(?![\w/-])/gu;

function element(name, texts = {}, namespace = null) {
  const found = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(texts)) {
    if (key === "text") found.textContent = value;
    else found.setAttribute(key, value);
  }
  return found;
}

// A sentence whose numbers lead to where they are shown; those within a name lead nowhere.
function linkedSentence(text, anchor, names) {
  const parts = [];
  let end = 0;
  const taken = names.flatMap((name) => [...text.matchAll(literally(name))].map(({ index }) => [index, index + name.length]));
  for (const { index, 0: found } of text.matchAll(NUMBER)) {
    const number = found.replace(/[.,]+$/, "");
    if (taken.some(([begin, stop]) => begin < index + number.length && index < stop)) continue;
    parts.push(text.slice(end, index), element("a", { href: `#${anchor}`, text: number }));
    end = index + number.length;
  }
  return [...parts, text.slice(end)];
}

const literally = (name) => new RegExp(name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "g");

let wholeFront = null; // the first screen as it was written

function tellFront(report, found) {
  const lead = document.getElementById("lead");
  wholeFront ??= [...lead.children].filter((part) => part.matches(".said, .forest"));
  const shown = found ? filteredFront(report, found) : wholeFront;
  for (const part of [...lead.children].filter((each) => each.matches(".said, .forest"))) part.remove();
  document.getElementById("filter-status").after(...shown);
  handOn(lead);
}

// Of a large run, or one of several answers to an item.
const NOT_KEPT = "Price and time are known for the whole run only.";

function filteredFront(report, { sentences, keepsSpent }) {
  const names = report.students.map((name) => shownText(plain(name)));
  const anchors = ["differences", "standings", "differences"];
  const said = sentences.map((text, at) => {
    const part = element("p", { class: "said", title: plain(text) });
    part.append(...linkedSentence(shownText(plain(text)), anchors[at], names));
    return part;
  });
  const { front } = report.tables;
  const table = wholeFront.find((part) => part.matches(".forest"));
  const [first, ...rest] = said;
  return [first, ...(table && front.rows.some((row) => row.score !== null) ? [forest(table, report, front, keepsSpent)] : []), ...rest];
}

function forest(before, { students }, { columns, rows, links }, keepsSpent) {
  const table = before.cloneNode(true);
  const known = rows.map((row, at) => ({ ...row, link: links[at] })).filter((row) => row.score !== null);
  const ends = known.flatMap((row) => [row.score_low ?? row.score, row.score_high ?? row.score]);
  const least = 10 * Math.floor(10 * Math.min(...ends));
  const most = Math.max(10 * Math.ceil(10 * Math.max(...ends)), least + 10);
  const place = (share) => Math.round(((100 * share - least) / (most - least)) * 1e4) / 100;
  const ticks = [least, (least + most) / 2, most];
  table.querySelectorAll(".axis i").forEach((tick, at) => { tick.textContent = String(ticks[at]); });
  const band = known[0];
  table.tBodies[0].replaceChildren(...known.map((row) => {
    const line = element("tr", { role: "row" });
    const name = element("th", { role: "rowheader", scope: "row", title: plain(row.student) });
    name.append(element("a", { href: `#items?${row.link}`, text: shownText(plain(row.student)) }));
    const [low, high] = [row.score_low ?? row.score, row.score_high ?? row.score].map(place);
    const svg = element("svg", { "aria-hidden": "true", class: `c${students.indexOf(row.student) % 8}` }, SVG);
    const [from, to] = [band.score_low ?? band.score, band.score_high ?? band.score].map(place);
    svg.append(
      element("rect", { x: `${from}%`, width: `${to - from}%`, height: "100%" }, SVG),
      element("line", { x1: `${low}%`, x2: `${high}%`, y1: "50%", y2: "50%" }, SVG),
      element("circle", { cx: `${place(row.score)}%`, cy: "50%", r: "5" }, SVG),
    );
    const bar = element("td", { role: "cell", class: "plot" });
    bar.append(svg);
    line.append(name, element("td", { role: "cell", class: "num", text: cellText(row, columns[1]) }), bar);
    columns.slice(2).forEach((column, at) => {
      const text = cellText(row, column);
      const cell = element("td", { role: "cell", class: "num", text });
      if (text === MISSING) cell.title = at && !keepsSpent ? NOT_KEPT : table.tHead.rows[0].cells[at + 3].title;
      line.append(cell);
    });
    return line;
  }));
  return table;
}
