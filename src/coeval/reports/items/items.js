// The list of items behind a choice, and one of them: `coevalItems.mount(element, source)`.
//
// source: {facets, rows(query, first, most) -> {rows, total, beside?, held?}, detail(item, task) -> [{where, detail}],
// marks?() -> [mark], mark?(mark), others? -> [{number, name}]}. The choice stands in the address after `#items?`.

(() => {
  "use strict";

  const { make, itemView, Matrix, FLAGS, itemNumber } = window.coevalItems;
  const PAGE = 50;
  const KEYS = ["task", "teacher", "student", "judge", "factor"];
  const LISTS = { task: "tasks", teacher: "teachers", student: "students", judge: "judges", factor: "factors" };
  const ORDERS = { id: "by id", worst: "worst answer first", disagreement: "judges disagree most", difficulty: "hardest first" };
  const BY_STUDENT = { highest: "highest of a student first", lowest: "lowest of a student first" };
  const SHORTCUTS = [
    ["arrows, j k", "move between cells; past the last row: next page"], ["Enter", "open a cell"], ["PageUp PageDown", "page of items"], ["/", "search"],
    ["← → or j k", "in an item: previous or next item"], ["n p", "in an item: next or previous answer"], ["Esc", "back to all items"], ["?", "this list"],
  ];

  const choiceInAddress = () => new URLSearchParams(location.hash.startsWith("#items?") ? location.hash.slice(7) : "");

  class Items {
    constructor(element, source) {
      this.source = source;
      window.coevalItems.shares = source.facets.shares;
      this.first = 0;
      this.page = { rows: [], total: 0 };
      this.marks = new Map();
      this.asked = 0;
      this.keeping = Promise.resolve();
      this.list = make("div", { class: "list" });
      this.one = make("div", { class: "one", hidden: true });
      this.element = element;
      element.classList.add("items");
      element.replaceChildren(this.list, this.one);
      window.addEventListener("hashchange", () => this.follow(true));
      document.addEventListener("keydown", (event) => this.key(event));
      this.filters();
      this.follow(location.hash.startsWith("#items"));
    }

    // What the address says is what is shown.
    async follow(moved = false) {
      const { usual } = this.source; // what is shown where the address tells of no items
      const here = location.hash.startsWith("#items");
      if (!here && this.query !== undefined && !usual) return;
      const choice = here ? choiceInAddress() : new URLSearchParams(usual?.() ?? "");
      this.report = choice.get("report");
      const opened = choice.get("open");
      const task = choice.get("in") ?? "";
      const single = !opened && choice.getAll("item").length === 1 ? choice.get("item") : null;
      const first = Number(choice.get("from") ?? 0) || 0;
      const of = choice.get("of");
      for (const key of ["open", "in", "of", "from", "report"]) choice.delete(key);
      const query = choice.toString();
      if (query !== this.query || first !== this.first) {
        this.query = query;
        this.first = first;
        this.drawChips(choice);
        await this.load();
      }
      if (opened || single) await this.open(opened ?? single, task, of);
      else this.close();
      const seen = this.element.getBoundingClientRect();
      if (moved && here && (seen.top > window.innerHeight / 2 || seen.bottom < 0)) this.element.scrollIntoView();
    }

    go(choice, more = {}) {
      const next = new URLSearchParams(choice);
      for (const [key, value] of Object.entries(more)) if (value !== null && value !== "" && value !== 0) next.set(key, value);
      if (this.report) next.set("report", this.report);
      const address = `#items?${next.toString()}`;
      if (location.hash === address) this.follow();
      else location.hash = address;
    }

    called(name) {
      const short = this.source.facets?.short ?? {};
      return Object.hasOwn(short, name) ? short[name] : name; // a model may be called "constructor"
    }

    choice() {
      return new URLSearchParams(this.query);
    }

    async load() {
      const asked = (this.asked += 1);
      this.status.textContent = "…";
      try {
        const [page, marks] = await Promise.all([this.source.rows(this.query, this.first, PAGE), this.source.marks ? this.source.marks() : []]);
        if (asked !== this.asked) return;
        this.page = page;
        this.marks = new Map(marks.map((mark) => [`${mark.task} ${mark.item}`, mark]));
        this.draw();
      } catch (error) {
        if (asked !== this.asked) return;
        this.page = { rows: [], total: 0 };
        this.draw();
        this.status.textContent = error.message;
      }
    }

    // --- the list -------------------------------------------------------------------------------

    filters() {
      const facets = this.source.facets;
      const words = make("input", { type: "search", name: "q", placeholder: "words in prompts, references, answers", "aria-label": "search" });
      const sought = (event) => {
        event.preventDefault();
        this.set("q", words.value.trim());
      };
      words.addEventListener("change", sought);
      this.search = words;
      const menus = KEYS.filter((key) => (facets[LISTS[key]] ?? []).length > 1).map((key) => this.menu(key, key, facets[LISTS[key]].map((name) => [name, this.called(name)])));
      for (const [name, values] of Object.entries(facets.attributes ?? {})) menus.push(this.menu("attribute", name, values.map((value) => [`${name}=${value}`, value])));
      if (facets.students.length > 1) {
        const pairs = facets.students.flatMap((one) => facets.students.filter((other) => other !== one).map((other) => [`${one},${other}`, `${this.called(one)} lost to ${this.called(other)}`]));
        if (pairs.length <= 60) menus.push(this.menu("lost", "lost", pairs, true));
      }
      menus.push(this.menu("flag", "flag", Object.entries(FLAGS)));
      this.order = make("select", { "aria-label": "order" }, Object.entries({ ...ORDERS, ...BY_STUDENT }).map(([value, name]) => make("option", { value, hidden: value in BY_STUDENT }, name)));
      this.order.addEventListener("change", () => this.orderBy(this.order.value === "id" ? "" : this.order.value));
      this.failed = this.box("failed", "something failed");
      this.marked = this.source.mark ? this.box("marked", "marked") : null;
      this.chips = make("ul", { class: "chips", "aria-label": "chosen" });
      this.status = make("p", { class: "status", role: "status" });
      this.figures = make("a", { class: "figures-of", hidden: true }, "Figures of this choice");
      this.matrix = new Matrix((step) => this.turn(step));
      this.pages = make("nav", { class: "pages", "aria-label": "pages of items" });
      this.list.replaceChildren(
        make("form", { class: "choosing", role: "search", submit: sought }, words, make("label", {}, "order ", this.order), this.failed, this.marked, make("details", { class: "menus" }, make("summary", {}, "Choose items"), make("div", { class: "choosing" }, menus))),
        this.chips,
        this.status,
        this.figures,
        this.matrix.frame,
        this.pages,
        make("p", { class: "note" }, make("button", { type: "button", click: () => this.help() }, "Keys (?)")),
      );
    }

    menu(key, name, values, single = false) {
      const select = make("select", { "data-key": key }, make("option", { value: "" }, "any"), values.map(([value, text]) => make("option", { value }, text)));
      select.addEventListener("change", () => {
        if (!select.value) return;
        const choice = this.choice();
        if (single) choice.delete(key);
        if (!choice.getAll(key).includes(select.value)) choice.append(key, select.value);
        select.value = "";
        this.go(choice);
      });
      return make("label", {}, make("bdi", {}, name), " ", select);
    }

    box(key, text) {
      const input = make("input", { type: "checkbox", "data-key": key });
      input.addEventListener("change", () => this.set(key, input.checked ? "1" : ""));
      return make("label", { class: "box" }, input, ` ${text}`);
    }

    set(key, value) {
      const choice = this.choice();
      if ((choice.get(key) ?? "") === value) return;
      if (value) choice.set(key, value);
      else choice.delete(key);
      this.go(choice);
    }

    orderBy(order, student = "") {
      const choice = this.choice();
      choice.delete("order");
      choice.delete("by");
      this.go(choice, { order, by: student });
    }

    // A student's column: highest first, then lowest, then as it was.
    sortBy(student) {
      const next = this.sortedBy(student) === "none" ? "highest" : this.sortedBy(student) === "descending" ? "lowest" : "";
      this.orderBy(next, next && student);
    }

    sortedBy(student) {
      const choice = this.choice();
      if (choice.get("by") !== student) return "none";
      return choice.get("order") === "highest" ? "descending" : choice.get("order") === "lowest" ? "ascending" : "none";
    }

    drawChips(choice) {
      this.search.value = choice.get("q") ?? "";
      this.order.value = choice.get("order") ?? "id";
      for (const box of this.list.querySelectorAll("input[type=checkbox]")) box.checked = choice.get(box.dataset.key) === "1";
      const chips = [...choice].filter(([key]) => !["q", "order", "by", "failed", "marked"].includes(key));
      this.chips.replaceChildren(
        ...chips.map(([key, value]) => {
          const rest = new URLSearchParams([...choice].filter(([k, v]) => k !== key || v !== value));
          const text = key === "lost" ? this.lost(choice).map((name) => this.called(name)).join(" lost to ") : key === "attribute" ? value.replace("=", " = ") : key === "flag" ? (FLAGS[value] ?? value) : `${key} ${this.called(value)}`;
          return make("li", {}, make("button", { type: "button", click: () => this.go(rest), "aria-label": `no longer ${text}`, title: this.called(value) === value ? null : value }, make("bdi", {}, text), make("span", { "aria-hidden": "true" }, " ×")));
        }),
      );
    }

    draw() {
      const { rows, total, held } = this.page;
      const end = this.first + rows.length;
      const count = total.toLocaleString("en-US");
      this.status.textContent = !total ? "No item matches." : `${count} ${total === 1 ? "item" : "items"}${total > rows.length ? `, ${(this.first + 1).toLocaleString("en-US")}–${end.toLocaleString("en-US")} shown` : ""}${held ? ` · ${held}` : ""}`;
      const figures = this.source.figures?.(this.choice());
      this.figures.hidden = !figures;
      if (figures) this.figures.href = figures;
      const columns = this.columns(rows);
      const { facets } = this.source;
      const several = (key) => (facets?.[key] ?? []).length > 1;
      const factors = this.choice().getAll("factor");
      this.matrix.draw(rows, columns, {
        tasks: several("tasks"),
        teachers: several("teachers"),
        spread: rows.some((row) => row.disagreement !== null && row.disagreement !== undefined),
        noted: rows.some((row) => row.failed || row.flags?.length || this.marks.has(`${row.task} ${row.item}`)),
        binary: (factors.length ? factors : (facets?.shown ?? [])).every((factor) => facets?.binary?.includes(factor)) && (factors.length > 0 || facets?.shown?.length > 0),
        marks: this.marks,
        called: (name) => this.called(name),
        sortedBy: (student) => (facets?.students.includes(student) ? this.sortedBy(student) : null),
        sortBy: (student) => this.sortBy(student),
        address: (row, student) => this.address(row, student),
      });
      this.drawPages(total);
    }

    // A column for each student, also of the folders that are shown beside this one.
    columns(rows) {
      const place = (student) => this.source.facets?.students.indexOf(student) ?? 0; // the best stands first
      const students = [...new Set(rows.flatMap((row) => Object.keys(row.scores)))].sort().sort((a, b) => place(a) - place(b));
      const found = students.map((student) => ({ name: student, label: this.called(student), student, of: (row) => row.scores[student], has: (row) => Object.hasOwn(row.scores, student) }));
      for (const [number, scores] of Object.entries(this.page.beside ?? {})) {
        const where = this.source.others?.find((other) => String(other.number) === number)?.name ?? number;
        const there = [...new Set(Object.values(scores).flatMap((one) => Object.keys(one)))].sort();
        for (const student of there) {
          const name = `${where}: ${student}`;
          found.push({ name, label: `${where}: ${this.called(student)}`, student: name, of: (row) => scores[`${row.task} ${row.item}`]?.[student], has: (row) => Object.hasOwn(scores[`${row.task} ${row.item}`] ?? {}, student) });
        }
      }
      return found;
    }

    // Of the page that is shown, or of an item of it, and of a student's answer.
    address(row = null, student = null) {
      const parts = { from: this.first, open: row?.item, in: row?.task, of: student, report: this.report };
      const choice = this.choice();
      for (const [key, value] of Object.entries(parts)) if (value) choice.set(key, value);
      return `#items?${choice}`;
    }

    drawPages(total) {
      const turn = (first, text, name) => make("button", { type: "button", disabled: first < 0 || first >= total, click: () => this.go(this.choice(), { from: first }), "aria-label": name }, text);
      const last = Math.floor((total - 1) / PAGE) * PAGE;
      this.pages.hidden = total <= PAGE;
      this.pages.replaceChildren(
        turn(this.first > 0 ? 0 : -1, "⇤", "first page"),
        turn(this.first > 0 ? Math.max(0, this.first - PAGE) : -1, "← earlier", "page before"),
        turn(this.first + PAGE, "later →", "next page"),
        turn(this.first < last ? last : total, "⇥", "last page"),
      );
    }

    // --- one item -------------------------------------------------------------------------------

    async open(item, task, of) {
      const asked = (this.asked += 1);
      this.opened = { item, task };
      let sets;
      try {
        sets = await this.source.detail(item, task);
      } catch (error) {
        sets = null;
        this.list.hidden = false;
        this.status.textContent = error.message;
      }
      if (asked !== this.asked) return;
      if (!sets?.length) {
        this.one.hidden = true;
        this.list.hidden = false;
        if (sets) this.status.textContent = `There is no item ${item} here.`;
        return;
      }
      const [{ detail }] = sets;
      this.opened = { item: detail.item, task: detail.task };
      const [loser, winner] = this.lost();
      const students = this.choice().getAll("student");
      this.view = itemView(sets, { of: of ?? loser ?? (students.length === 1 ? students[0] : null), beside: winner, turned: (student) => this.turnTo(student), short: this.source.facets?.short });
      const at = this.place();
      const where = at < 0 ? "" : `${(this.first + at + 1).toLocaleString("en-US")} of ${this.page.total.toLocaleString("en-US")}`;
      this.one.replaceChildren(
        make(
          "div",
          { class: "walk" },
          make("button", { type: "button", click: () => this.back() }, "↑ all items"),
          make("h3", { tabindex: "-1", title: detail.item }, make("bdi", {}, itemNumber(detail))),
          make("span", { class: "where" }, where),
          make("button", { type: "button", disabled: at < 0 || this.first + at <= 0, click: () => this.walk(-1), "aria-label": "item before" }, "←"),
          make("button", { type: "button", disabled: at < 0 || this.first + at + 1 >= this.page.total, click: () => this.walk(1), "aria-label": "next item" }, "→"),
        ),
        this.source.mark ? this.markForm(detail) : make("span"),
        this.view.element,
      );
      const was = this.list.hidden;
      this.list.hidden = true;
      this.one.hidden = false;
      if (!was) this.element.scrollIntoView({ block: "start" });
      this.one.querySelector("h3").focus({ preventScroll: true });
    }

    // Of a choice of items that one student lost to another: both.
    lost(choice = this.choice()) {
      const [loser, ...winner] = (choice.get("lost") ?? "").split(",");
      return winner.length ? [loser, winner.join(",")] : [];
    }

    // The address names the answer that is read, without a new step back.
    turnTo(student) {
      const query = choiceInAddress();
      query.set("of", student);
      history.replaceState(null, "", `#items?${query}`);
    }

    close() {
      const was = this.opened;
      this.opened = null;
      this.one.hidden = true;
      this.list.hidden = false;
      if (was) this.matrix.focus();
      if (this.stale) this.keeping.then(() => this.load());
      this.stale = false;
    }

    back() {
      const choice = this.choice();
      if (choice.getAll("item").length === 1) choice.delete("item");
      this.go(choice, { from: this.first });
    }

    place() {
      return this.page.rows.findIndex((row) => row.item === this.opened.item && row.task === this.opened.task);
    }

    async walk(step) {
      let at = this.place() + step;
      if (at < 0 || at >= this.page.rows.length) {
        if (this.place() < 0 || !(await this.turn(step))) return;
        at = step > 0 ? 0 : this.page.rows.length - 1;
      }
      if (!this.page.rows[at]) return;
      this.matrix.reach(at, this.matrix.at[1]);
      location.hash = this.address(this.page.rows[at], choiceInAddress().get("of"));
    }

    // To the page before or after; whether there is one.
    async turn(step) {
      const first = this.first + step * PAGE;
      if (first < 0 || first >= this.page.total) return false;
      this.first = first;
      await this.load();
      if (!this.opened) history.replaceState(null, "", this.address());
      return true;
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, dialog, .drawing")) return;
      if (event.key === "?") return this.help();
      if (!this.opened) {
        if (event.key !== "/" || this.element.getBoundingClientRect().top > window.innerHeight) return;
        this.search.focus();
      } else if (event.target.closest("[role=group].scroll")) return;
      else if (event.key === "ArrowLeft" || event.key === "k") this.walk(-1);
      else if (event.key === "ArrowRight" || event.key === "j") this.walk(1);
      else if (event.key === "n" || event.key === "p") this.view.next(event.key === "n" ? 1 : -1);
      else if (event.key === "Escape") this.back();
      else return;
      event.preventDefault();
    }

    help() {
      const dialog = make("dialog", { "aria-label": "Keys" }, make("h3", {}, "Keys among items"), make("dl", { class: "told" }, SHORTCUTS.map(([keys, what]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, what)])), make("form", { method: "dialog" }, make("button", {}, "Close")));
      dialog.addEventListener("close", () => dialog.remove());
      this.element.append(dialog);
      dialog.showModal();
    }

    markForm(detail) {
      const mark = this.marks.get(`${detail.task} ${detail.item}`) ?? { flag: false, note: "" };
      const flag = make("button", { type: "button", "aria-pressed": String(Boolean(mark.flag)), class: "flag" }, "⚑ mark");
      const note = make("textarea", { rows: "2", maxlength: "10000", "aria-label": "note", placeholder: "a note on this item" });
      note.value = mark.note ?? "";
      const said = make("span", { role: "status", class: "note" });
      const send = async () => {
        const given = { item: detail.item, task: detail.task, flag: flag.getAttribute("aria-pressed") === "true", note: note.value };
        try {
          const kept = await this.source.mark(given);
          this.marks.set(`${detail.task} ${detail.item}`, { ...given, ...kept });
          said.textContent = "kept";
        } catch (error) {
          said.textContent = error.message;
        }
      };
      // One after the other: of an item's marks the last one counts.
      const keep = () => {
        this.stale = true;
        this.keeping = this.keeping.then(send);
      };
      flag.addEventListener("click", () => {
        flag.setAttribute("aria-pressed", String(flag.getAttribute("aria-pressed") !== "true"));
        keep();
      });
      note.addEventListener("change", keep);
      return make("div", { class: "marking" }, flag, note, said);
    }
  }

  window.coevalItems.mount = (element, source) => new Items(element, source);
})();
