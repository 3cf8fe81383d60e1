// A forest of students in the list of `coeval view`, as the first screen of a page writes its own.

const SVG = "http://www.w3.org/2000/svg";

function element(name, texts = {}, namespace = null) {
  const found = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(texts)) {
    if (key === "text") found.textContent = value;
    else found.setAttribute(key, value);
  }
  return found;
}

function forest(before, { students }, { columns, rows, links }) {
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
      line.append(cell);
    });
    return line;
  }));
  return table;
}
