// The surface as triangles: positions around the middle of the known ground, normals by differences, two triangles a square.
const MOST_VERTICES = 260_000;
const LEAST_CERTAIN = 0.1;

// limits: of the colour scale; heights are cut off half a scale beyond them. certain: share of the relief that is shown
// in each cell, or null for all of it; ground with next to none is left out. Otherwise extrapolated spikes at the edges
// of the data would be all that is seen.
function terrainMesh(map, elevation, limits, certain) {
  const stride = Math.max(1, Math.ceil(Math.sqrt((map.rows * map.columns) / MOST_VERTICES)));
  const rows = Math.ceil(map.rows / stride), columns = Math.ceil(map.columns / stride), count = rows * columns;
  const positions = new Float32Array(3 * count), normals = new Int8Array(4 * count), cells = new Uint32Array(count);
  const [low, high] = limits, cell = stride * map.resolution, beyond = (high - low) / 2;
  const cellAt = (row, column) => Math.min(row * stride, map.rows - 1) * map.columns + Math.min(column * stride, map.columns - 1);
  const at = (row, column) => Math.min(Math.max(elevation[cellAt(row, column)], low - beyond), high + beyond);
  const slopeAlong = (before, here, after) => {
    const down = here - before, up = after - here;
    return (Number.isNaN(down) ? (Number.isNaN(up) ? 0 : up) : Number.isNaN(up) ? down : (down + up) / 2) / cell;
  };
  let box = [columns, rows, 0, 0]; // of the known ground: first and last column and row
  for (let row = 0, k = 0; row < rows; row++) for (let column = 0; column < columns; column++, k++) {
    const here = at(row, column);
    cells[k] = cellAt(row, column);
    if (Number.isNaN(here)) continue;
    positions.set([column * cell, row * cell, here], 3 * k);
    box = [Math.min(box[0], column), Math.min(box[1], row), Math.max(box[2], column), Math.max(box[3], row)];
    const gx = slopeAlong(column ? at(row, column - 1) : NaN, here, column < columns - 1 ? at(row, column + 1) : NaN);
    const gy = slopeAlong(row ? at(row - 1, column) : NaN, here, row < rows - 1 ? at(row + 1, column) : NaN);
    const length = 127 / Math.hypot(gx, gy, 1);
    normals.set([-gx * length, -gy * length, length], 4 * k);
  }
  const known = (k) => !Number.isNaN(elevation[cells[k]]) && (!certain || certain[cells[k]] >= LEAST_CERTAIN), triangles = [];
  for (let row = 0; row < rows - 1; row++) for (let column = 0; column < columns - 1; column++) {
    const a = row * columns + column, [b, c, d] = [a + 1, a + columns, a + columns + 1];
    if (known(b) && known(c)) {
      if (known(a)) triangles.push(a, b, c);
      if (known(d)) triangles.push(b, d, c);
    }
  }
  const middle = [((box[0] + box[2]) / 2) * cell, ((box[1] + box[3]) / 2) * cell, (low + high) / 2];
  for (let k = 0; k < positions.length; k++) positions[k] -= middle[k % 3];
  const across = Math.max(Math.hypot((box[2] - box[0]) * cell, (box[3] - box[1]) * cell), cell);
  return { positions, normals, cells, triangles: new Uint32Array(triangles), middle, relief: high - low, across, count };
}

// Colours of the vertices by the layer that is chosen.
function terrainColours(mesh, layer, values) {
  const table = colours(layer), found = new Uint8Array(4 * mesh.count);
  for (let k = 0; k < mesh.count; k++) {
    const value = values[mesh.cells[k]], index = Number.isNaN(value) ? 0 : 3 * Math.round(255 * share(layer, value));
    for (let c = 0; c < 3; c++) found[4 * k + c] = table[index + c];
    found[4 * k + 3] = 255;
  }
  return found;
}

// A trajectory as a ribbon a little above the ground: lines of WebGL are one pixel wide.
function ribbon(map, mesh, track, width) {
  const points = [], half = map.resolution / 2;
  const [x0, y0, z0] = [map.origin[0] + half + mesh.middle[0], map.origin[1] + half + mesh.middle[1], mesh.middle[2]];
  const elevation = layerNamed("elevation"), n = track.x.length;
  for (let k = 0; k < n; k++) {
    const before = Math.max(k - 1, 0), after = Math.min(k + 1, n - 1);
    const dx = track.x[after] - track.x[before], dy = track.y[after] - track.y[before], length = Math.hypot(dx, dy) || 1;
    const ground = valueAt(elevation, track.x[k], track.y[k]);
    const z = (Number.isNaN(ground) ? track.z[k] : ground) - z0 + 0.6 * width;
    for (const side of [-0.5, 0.5]) points.push(track.x[k] - x0 - (side * width * dy) / length, track.y[k] - y0 + (side * width * dx) / length, z);
  }
  return new Float32Array(points);
}
