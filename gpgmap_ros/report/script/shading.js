// Layers as pictures: colours by value, relief by slope.
function colours(layer) {
  const table = new Uint8Array(768);
  for (let k = 0; k < 768; k++) table[k] = parseInt(layer.colours.substr(2 * k, 2), 16);
  return table;
}

// Slope along one axis at cell k, whose neighbours are k - step and k + step: from both, or from the one that is known.
function slope(elevation, k, step, before, after, cell) {
  const here = elevation[k], below = before ? elevation[k - step] : NaN, above = after ? elevation[k + step] : NaN;
  const down = (here - below) / cell, up = (above - here) / cell;
  if (Number.isNaN(down)) return Number.isNaN(up) ? 0 : up;
  return Number.isNaN(up) ? down : (down + up) / 2;
}

// Light from the north-west on the surface, by differences of the elevation; 1 on level ground.
// certain: share of the shade that is shown in each cell, or null for all of it.
function relief(elevation, rows, columns, cell, certain) {
  const light = new Float32Array(rows * columns).fill(1);
  const [lx, ly, lz] = [-0.5, 0.5, Math.SQRT1_2];
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const k = y * columns + x;
      if (Number.isNaN(elevation[k])) continue;
      const gx = 1.2 * slope(elevation, k, 1, x > 0, x < columns - 1, cell);
      const gy = 1.2 * slope(elevation, k, columns, y > 0, y < rows - 1, cell);
      const shade = Math.max(0, (lz - gx * lx - gy * ly) / Math.sqrt(1 + gx * gx + gy * gy));
      light[k] = Math.max(0.35, 1 + 0.75 * (certain ? certain[k] : 1) * (shade / lz - 1));
    }
  }
  return light;
}

const share = (layer, value) => {
  const [low, high] = layer.limits;
  const at = layer.logarithmic ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(Math.max(at, 0), 1);
};

function painted(layer, values, light, rows, columns) {
  const canvas = element("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const table = colours(layer), pixels = image.data;
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const k = y * columns + x, at = 4 * ((rows - 1 - y) * columns + x);
      const value = values[k];
      if (Number.isNaN(value)) continue; // transparent: the frame's grey is unknown ground
      const index = 3 * Math.round(255 * share(layer, value)), shade = light ? light[k] : 1;
      for (let c = 0; c < 3; c++) pixels[at + c] = table[index + c] * shade;
      pixels[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
