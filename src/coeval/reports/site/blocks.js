// Data blocks: gzip in base64, unpacked when somebody wants them.

function packedBytes(name) {
  const text = document.getElementById(`data-${name}`).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function unpacked(name) {
  const stream = new Blob([packedBytes(name)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream);
}

const blocks = new Map();

function once(name, read) {
  if (!blocks.has(name)) blocks.set(name, read(name));
  return blocks.get(name);
}

const jsonBlock = (name) => once(name, async (wanted) => withLabels(await unpacked(wanted).json()));

// Items' labels come with the tables that they stand in; there may be thousands.
function withLabels(found) {
  for (const [name, short] of Object.entries(found.alone ?? {})) shortNames.set(name, short);
  return found;
}

// A script of ours from a data block: the page's policy knows its hash.
const scriptBlock = (name) =>
  once(name, async (wanted) => {
    const script = document.createElement("script");
    script.textContent = await unpacked(wanted).text();
    document.head.append(script);
  });
