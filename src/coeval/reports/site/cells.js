// Cells as people read them: the same texts as coeval.reports.content.

const MISSING = "–";

const minus = (text) => (text.startsWith("-") ? (/[1-9]/.test(text) ? `−${text.slice(1)}` : text.slice(1)) : text);

// As Python rounds: what lies in the middle, as 0.125 does exactly, goes to the even digit.
function fixed(value, digits) {
  const inMiddle = Math.abs(value) * 2 ** (digits + 1);
  const below = Math.floor(Math.abs(value) * 10 ** digits);
  const isPlain = !Number.isInteger(inMiddle) || inMiddle % 2 === 0;
  const [whole, part] = (isPlain ? value : (Math.sign(value) * (below + (below % 2))) / 10 ** digits).toFixed(digits).split(".");
  return minus([whole.replace(/\B(?=(\d{3})+$)/g, ","), part].filter(Boolean).join("."));
}

// As coeval.core.plain does: what cannot be shown, or would turn a line around, is written out.
const UNPRINTABLE = /(?![\u200c\u200d])[\p{C}\u2028\u2029]/gu;
const NAMED_ESCAPES = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

const plain = (text) => text.replace(UNPRINTABLE, (character) => {
  if (NAMED_ESCAPES[character]) return NAMED_ESCAPES[character];
  const code = character.codePointAt(0);
  const [letter, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(width, "0")}`;
});

// Names as people read them: Python shortens, and this replaces (coeval.core.plain).
const shortNames = new Map(Object.entries(JSON.parse(document.getElementById("short-names")?.textContent ?? "{}")));
const namesInText = nameSearch([...shortNames.keys()]);

// Word by word; a name without any sign but letters is also a word of sentences, and is replaced where it stands alone.
function nameSearch(names) {
  const distinct = names.filter((name) => /[^a-zA-Z]/.test(name)).sort((one, other) => other.length - one.length);
  const words = distinct.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  return words ? new RegExp(`(?<![\\w/@-])(?<!\\w[.:])(?:${words})(?![\\w/@-]|[.:]\\w)`, "g") : null;
}

function shownText(text) {
  if (shortNames.has(text)) return shortNames.get(text);
  return namesInText === null ? text : text.replace(namesInText, (name) => shortNames.get(name));
}

// An element with a text, and with the whole names in a tooltip where they are short in it.
function showIn(element, text) {
  element.textContent = shownText(text);
  if (element.textContent === text) element.removeAttribute("title");
  else element.title = text;
}

const roundedSum = (number) => Math.round(number * 1e9) / 1e9; // however it was summed

const many = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;

// A number as coeval.core.figures writes it, whose table of kinds this is.
function figure(value, kind) {
  const { factor, decimals, significant, before, after, least, zero, trimmed } = FIGURE_FORMATS[kind];
  if (value < least && (value > 0 || !zero)) return `<${before}${least}`;
  const scaled = roundedSum(factor * value);
  const exponent = Number(scaled.toExponential(Math.max(0, significant - 1)).split("e")[1]);
  const text = fixed(scaled, significant && scaled ? Math.max(decimals, significant - 1 - exponent) : decimals);
  return `${before}${trimmed && text.includes(".") ? text.replace(/\.?0+$/, "") : text}${after}`;
}

const points = (score) => figure(score, "points");
const dollars = (usd) => figure(usd, "usd");

// A difference in points; both bounds where the interval is lopsided.
const differenceText = (middle, low, high) => `${points(middle)} ${intervalText(middle, low, high)}`;

function intervalText(middle, low, high) {
  const lopsided = Math.abs(100 * high - 100 * middle - (100 * middle - 100 * low)) >= NEARLY_SYMMETRIC;
  return lopsided ? `[${points(low)}, ${points(high)}]` : `± ${points((high - low) / 2)}`;
}

const figureText = (kind, value, low, high) =>
  low === null || low === undefined ? figure(value, kind) : kind === "gap" ? differenceText(value, low, high) : `${figure(value, kind)} [${figure(low, kind).replace("%", "")}, ${figure(high, kind)}]`;

function cellText(row, column) {
  const value = row[column.name];
  if (value === null || value === undefined) return MISSING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return plain(value);
  return figureText(column.kind, value, row[`${column.name}_low`], row[`${column.name}_high`]);
}

// A table as a spreadsheet reads it; text that it would take for a formula is marked as text.
function csvText({ columns, rows }) {
  const names = columns.flatMap(({ name }) =>
    rows.some((row) => `${name}_low` in row) ? [name, `${name}_low`, `${name}_high`, `${name}_n`] : [name],
  );
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value !== "string") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows.map((row) => names.map((name) => row[name]))]
    .map((line) => `${line.map(cell).join(",")}\n`)
    .join("");
}
