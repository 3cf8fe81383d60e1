// Items × students: a cell for each answer, coloured by its score, level, check or correctness.
// Arrows go from cell to cell, one of which can be reached by Tab.

(() => {
  "use strict";

  const { make, score } = window.coevalItems;
  const FLAGS = { all_pass: "everybody passes", all_fail: "nobody passes", reversed: "order reversed", near_duplicate: "near duplicate" };
  const STEPS = { ArrowUp: [-1, 0], k: [-1, 0], ArrowDown: [1, 0], j: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  // A teacher's `haiku__t.1__00017` is #17; an id of another kind stays as it is.
  const itemNumber = ({ item, teacher }) => (teacher && /__\d+$/.test(item) ? `#${Number(item.slice(item.lastIndexOf("__") + 2))}` : item);
  const opening = (text) => (text ?? "").replace(/\s+/g, " ").trim().slice(0, 80);

  // What a cell shows: a sign where all there is is right or wrong, else points; amounts of other units as they are.
  function cellOf(value, student, isBinary) {
    if (value === undefined) return { text: "", tone: "gap", says: "no answer" };
    if (value === null) return { text: "–", tone: "gap", says: "no score" };
    const tone = value < 0 || value > 1 ? "" : `v${Math.min(4, Math.floor(value * 5))}`;
    if (isBinary && (value === 0 || value === 1)) return { text: value ? "✓" : "✗", tone, says: value ? "right" : "wrong" };
    return { text: score(value), tone, says: score(value) };
  }

  class Matrix {
    // `turn(step)`: to the page of items before or after, as a promise of whether there is one.
    constructor(turn) {
      Object.assign(this, { turn, at: [0, 0], cells: [], element: make("div", { class: "scroll" }) });
      this.frame = make("div", { class: "framed" }, this.element);
      this.element.addEventListener("keydown", (event) => this.key(event));
      this.element.addEventListener("focusin", (event) => {
        const found = this.cells.flatMap((line, row) => line.map((cell, column) => [cell, row, column])).find(([cell]) => cell === event.target);
        if (found) this.reach(found[1], found[2]);
      });
    }

    // `columns`: {name, label, student, of(row), has(row)}; `facts`: {tasks, teachers, spread, noted, binary, marks, called, address, sortBy, sortedBy}.
    draw(rows, columns, facts) {
      const held = this.element.contains(document.activeElement);
      const sorting = document.activeElement?.closest("th")?.cellIndex;
      const names = [["Item", "k-text", ""], ...columns.map(({ name, label, student }) => [label, "k-score", name, student]), ...(facts.spread ? [["Apart", "k-score", "disagreement of judges, in points"]] : []), ...(facts.noted ? [["Notes", "k-text", ""]] : [])];
      this.cells = [];
      const table = make(
        "table",
        { class: "rows", role: "grid", "aria-label": "items and what students scored on them" },
        make("thead", {}, make("tr", {}, names.map((one) => this.head(one, facts)))),
        make("tbody", {}, rows.map((row) => this.row(row, columns, facts))),
      );
      this.element.replaceChildren(...(rows.length ? [table] : []));
      watchEdges(this.element);
      this.reach(Math.min(this.at[0], rows.length - 1), Math.min(this.at[1], columns.length));
      const head = sorting === undefined ? null : table.tHead.rows[0].cells[sorting]?.querySelector("button");
      if (held && head) head.focus();
      else if (held) this.focus();
    }

    // A student's name sorts; those of folders beside this one do not.
    head([name, kind, title, student], { sortBy, sortedBy }) {
      const order = student === undefined ? null : sortedBy(student);
      const text = make("bdi", {}, name);
      return make("th", { scope: "col", class: kind, "aria-sort": order, title: title && title !== name ? title : null }, order === null ? text : make("button", { type: "button", click: () => sortBy(student) }, text));
    }

    row(row, columns, { tasks, teachers, spread, noted, binary, marks, called, address }) {
      const link = (text, attributes) => make("a", { tabindex: "-1", ...attributes }, text);
      const whole = [row.item, ...Object.entries(row.attributes ?? {}).map(([name, value]) => `${name} = ${value}`)].join("\n");
      const under = [tasks ? row.task : null, teachers && row.teacher ? called(row.teacher) : null].filter(Boolean).join(" · ");
      const head = link([make("b", {}, itemNumber(row)), " ", make("span", { class: "opening" }, row.opening ?? ""), under ? make("span", { class: "under" }, make("bdi", {}, under)) : null], { href: address(row), title: whole });
      const cells = columns.map((column) => {
        const value = column.has(row) ? column.of(row) : undefined;
        const { text, tone, says } = cellOf(value, column.name, binary);
        const cell = link(text, { href: address(row, column.student), "aria-label": `${itemNumber(row)}, ${column.label}: ${says}`, title: `${column.name}: ${says}` });
        return [cell, make("td", { class: `k-score cell ${tone}` }, cell)];
      });
      this.cells.push([head, ...cells.map(([cell]) => cell)]);
      const mark = marks.get(`${row.task} ${row.item}`);
      const notes = [
        mark?.flag ? make("span", { class: "flag", title: "marked" }, "⚑") : null,
        mark?.note ? make("span", { class: "noted" }, mark.note.length > 80 ? `${mark.note.slice(0, 80)}…` : mark.note) : null,
        row.failed ? make("span", { class: "failure" }, `${row.failed} failed`) : null,
        (row.flags ?? []).map((flag) => make("span", { class: "tag" }, FLAGS[flag] ?? flag)),
      ];
      return make(
        "tr",
        {},
        make("th", { scope: "row", class: "k-text" }, head),
        cells.map(([, place]) => place),
        spread ? make("td", { class: "k-score" }, score(row.disagreement)) : null,
        noted ? make("td", { class: "k-text" }, notes) : null,
      );
    }

    reach(row, column) {
      const cell = (row_, column_) => this.cells[row_]?.[column_];
      cell(...this.at)?.setAttribute("tabindex", "-1");
      this.at = [Math.max(0, row), Math.max(0, column)];
      cell(...this.at)?.setAttribute("tabindex", "0");
    }

    focus() {
      this.cells[this.at[0]]?.[this.at[1]]?.focus();
    }

    async key(event) {
      if (event.altKey || event.metaKey || !event.target.matches("a")) return;
      const [row, column] = this.at;
      const last = this.cells.length - 1;
      const [down, right] = STEPS[event.key] ?? [0, 0];
      if (event.key in STEPS && !event.ctrlKey) {
        event.preventDefault();
        if (row + down >= 0 && row + down <= last) return this.move(row + down, column + right);
        if (await this.turn(down)) this.move(down > 0 ? 0 : this.cells.length - 1, column);
      } else if (event.key === "PageDown" || event.key === "PageUp") {
        event.preventDefault();
        if (await this.turn(event.key === "PageDown" ? 1 : -1)) this.move(0, column);
      } else if (event.key === "Home" || event.key === "End") {
        event.preventDefault();
        const end = event.key === "Home" ? 0 : Infinity;
        this.move(event.ctrlKey ? Math.min(end, last) : row, end);
      }
    }

    move(row, column) {
      this.reach(row, Math.max(0, Math.min(column, (this.cells[row]?.length ?? 1) - 1)));
      this.focus();
      this.cells[this.at[0]]?.[this.at[1]]?.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }

  window.coevalItems = { ...window.coevalItems, Matrix, FLAGS, itemNumber, opening };
})();
