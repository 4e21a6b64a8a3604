// Weights: unpacked head by head, read by query and key, drawn on a canvas.

const SIGN = 128; // added to the level of a negative weight
const KEPT = 60; // unpacked heads that are kept
const unpacked = new Map();

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// {codes, rows, cols, top, left, most, at(row, col)} of one head in one window; rows and columns of the whole matrix.
async function weightsOf(group, layer, head, window) {
  const part = group.sheets[layer].data[head][window];
  if (!unpacked.has(part)) {
    const codes = await inflate(part.codes);
    if (unpacked.size >= KEPT) unpacked.delete(unpacked.keys().next().value);
    const [top, bottom, left, right] = group.windows[window];
    const signed = part.max < 0;
    const levels = signed ? Math.min(group.levels, SIGN - 1) : group.levels;
    const most = Math.abs(part.max);
    const at = (row, col) => {
      const code = codes[(row - top) * (right - left) + col - left];
      const level = signed && code >= SIGN ? code - SIGN : code;
      const size = most * (level / levels) ** 2;
      return signed && code >= SIGN ? -size : size;
    };
    unpacked.set(part, { codes, top, bottom, left, right, signed, levels, most, at });
  }
  return unpacked.get(part);
}

let palette = null;

// Colours of levels 0 to 1, for both signs, from the page's own.
function colours() {
  if (palette) return palette;
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const style = getComputedStyle(document.documentElement);
  const ground = rgb(style.getPropertyValue("--ground").trim());
  const ramp = (to) => Array.from({ length: 256 }, (_, i) => ground.map((from, c) => Math.round(from + ((to[c] - from) * i) / 255)));
  palette = [ramp(rgb(style.getPropertyValue("--accent").trim())), ramp(rgb("#c8503c"))];
  return palette;
}

function paint(canvas, codes, rows, cols, { signed = false, levels = 255 } = {}) {
  const [up, down] = colours();
  [canvas.width, canvas.height] = [cols, rows];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(cols, rows);
  const words = new Uint32Array(image.data.buffer);
  const packedColour = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const table = Uint32Array.from({ length: 256 }, (_, code) => {
    const negative = signed && code >= SIGN;
    const level = Math.min(255, Math.round((255 * (negative ? code - SIGN : code)) / levels));
    return packedColour(negative ? down[level] : up[level]);
  });
  for (let i = 0; i < words.length; i += 1) words[i] = table[codes[i]];
  pen.putImageData(image, 0, 0);
}
