// Text for the clipboard, and tables as papers, notes and spreadsheets take them.

// Whether it was copied. Where the clipboard's own interface is not there, or refuses, the selection is copied.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const place = document.createElement("textarea");
    place.value = text;
    place.className = "unseen";
    const before = document.activeElement;
    document.body.append(place);
    place.select();
    const copied = document.execCommand("copy");
    place.remove();
    before?.focus();
    return copied;
  }
}

// Columns' titles and all cells as they are shown; each cell with whether it is text.
function shownCells({ columns, rows }) {
  return {
    heads: columns.map((column) => ({ text: plain(column.title), isText: column.kind === "text" })),
    lines: rows.map((row) => columns.map((column) => ({ text: shownText(cellText(row, column)), isText: column.kind === "text" }))),
  };
}

function markdownText(table) {
  const { heads, lines } = shownCells(table);
  // Within a word an underscore is no sign of emphasis.
  const cell = ({ text, isText }) => (isText ? text.replace(/[\\`*[\]<>|~#]|(?<!\w)_|_(?!\w)/g, "\\$&") : text.replace(/[|<>]/g, "\\$&"));
  const line = (cells) => `| ${cells.join(" | ")} |\n`;
  return line(heads.map(cell)) + line(heads.map(({ isText }) => (isText ? "---" : "---:"))) + lines.map((cells) => line(cells.map(cell))).join("");
}

const LATEX = {
  "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}",
  "−": "$-$", "±": "$\\pm$", "–": "--", "—": "---", "·": "$\\cdot$", "×": "$\\times$", "●": "$\\bullet$", "…": "\\dots{}", "\u00a0": "~", "κ": "$\\kappa$",
};
const latex = (text) => text.replace(/[\\{}&%$#_~^<>|−±–—·×●…\u00a0κ]/g, (sign) => LATEX[sign] ?? `\\${sign}`);

function latexText(table) {
  const { heads, lines } = shownCells(table);
  // A cell that begins with a bracket would be taken for the argument of the line break before it.
  const line = (cells) => `${cells.map(({ text }) => latex(text).replace(/^(?=[[*])/, "{}")).join(" & ")} \\\\\n`;
  const kinds = heads.map(({ isText }) => (isText ? "l" : "r")).join("");
  return `% \\usepackage{booktabs}\n\\begin{tabular}{${kinds}}\n\\toprule\n${line(heads)}\\midrule\n${lines.map(line).join("")}\\bottomrule\n\\end{tabular}\n`;
}

const COPIES = { Markdown: markdownText, LaTeX: latexText, CSV: csvText };
