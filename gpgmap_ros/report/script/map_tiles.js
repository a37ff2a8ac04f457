// A map that is larger than the page: tiles beside it, finer than the page's own map, asked for where the reader looks.
// Each is a script that calls takeTile, because a page from a disk may read nothing else: gpgmap_ros/report/map_tiles.py
const tiles = { loaded: new Map(), loading: new Map(), missing: new Set(), wanted: [], visible: 0 };
const TILES_AT_ONCE = 6, LEAST_TILES_KEPT = 48;

const tileKey = (layer, level, row, column) => `${layer}/${level}/${row}_${column}`;
const isTiled = (layer) => Boolean(data.map.tiles) && data.map.tiles.layers.includes(layer.name);
const tileIsThere = (level, row, column) => data.map.tiles.levels[level].there[row * data.map.tiles.levels[level].columns + column] === "1";
// Edge of the smallest cells that can be shown, metres.
const finestCell = () => (data.map.tiles ? data.map.tiles.levels[0].resolution : data.map.resolution);

// The finest level whose cells are not much smaller than the pixels of a canvas; -1 where the page's own map is enough.
function tileLevel(canvas) {
  const pixel = 1 / (scaleOf(canvas) * (window.devicePixelRatio || 1));
  return data.map.tiles.levels.findIndex((level) => level.resolution >= 0.75 * pixel);
}

// For the reader: how large the cells are that the map shows now, where that depends on the zoom.
function cellsShown(canvas) {
  if (!data.map.tiles) return "";
  const level = isTiled(data.map.layers[view.layer]) ? tileLevel(canvas) : -1;
  const cell = level < 0 ? data.map.resolution : data.map.tiles.levels[level].resolution;
  return `   cells of ${Number(cell.toPrecision(6))} m`;
}

// The tiles of a level that a canvas shows: row, column.
function tilesIn(canvas, level) {
  const { edge, corner, levels } = data.map.tiles, side = edge * levels[level].resolution;
  const [west, north] = world(0, 0, canvas), [east, south] = world(canvas.clientWidth, canvas.clientHeight, canvas);
  const range = (from, to, count) => [Math.max(Math.floor(from / side), 0), Math.min(Math.floor(to / side), count - 1)];
  const [top, bottom] = range(corner[1] - north, corner[1] - south, levels[level].rows);
  const [left, right] = range(west - corner[0], east - corner[0], levels[level].columns), found = [];
  for (let row = top; row <= bottom; row++) for (let column = left; column <= right; column++) found.push([row, column]);
  return found;
}

// Draw the tiles of a layer over the page's own map, coarse ones first; those that are not there yet are asked for.
function drawTiles(context, k) {
  const canvas = context.canvas, layer = data.map.layers[k], finest = tileLevel(canvas);
  if (!isTiled(layer) || finest < 0) return;
  for (let level = data.map.tiles.levels.length - 1; level >= finest; level--)
    for (const [row, column] of tilesIn(canvas, level)) {
      const key = tileKey(layer.name, level, row, column), there = tileIsThere(level, row, column), tile = tiles.loaded.get(key);
      if (tile || !there) drawTile(context, layer, level, row, column, tile);
      if (level === finest) tiles.visible++;
      if (level === finest && there && !tile) tiles.wanted.push([key, distanceToMiddle(canvas, level, row, column)]);
    }
}

// What lies under a tile is coarser and must not be seen where the tile has unknown ground, or is unknown as a whole.
function drawTile(context, layer, level, row, column, tile) {
  const { edge, corner, levels } = data.map.tiles, cell = levels[level].resolution, ratio = window.devicePixelRatio || 1;
  const [rows, columns] = tile ? [tile.rows, tile.columns] : [edge, edge];
  const x = corner[0] + column * edge * cell, y = corner[1] - row * edge * cell;
  const whole = (value) => Math.round(value * ratio) / ratio; // no gaps between neighbours
  const [left, top] = screen(x, y, context.canvas).map(whole);
  const [right, bottom] = screen(x + columns * cell, y - rows * cell, context.canvas).map(whole);
  context.clearRect(left, top, right - left, bottom - top);
  if (!tile) return;
  const lit = Boolean(view.shaded && layer.shaded && tile.light);
  if (tile.lit !== lit) [tile.image, tile.lit] = [painted(layer, tile.values, lit ? tile.light : null, rows, columns), lit];
  context.imageSmoothingEnabled = cell * scaleOf(context.canvas) < 3;
  context.drawImage(tile.image, left, top, right - left, bottom - top);
  const key = tileKey(layer.name, level, row, column);
  tiles.loaded.delete(key);
  tiles.loaded.set(key, tile); // the last ones are those used last
}

function distanceToMiddle(canvas, level, row, column) {
  const { edge, corner, levels } = data.map.tiles, side = edge * levels[level].resolution;
  return Math.hypot(corner[0] + (column + 0.5) * side - view.x, corner[1] - (row + 0.5) * side - view.y);
}

// Ask for what was missed while the map was drawn, from its middle on, a few at a time; forget what was not used lately.
function requestTiles() {
  const keep = Math.max(LEAST_TILES_KEPT, 2 * tiles.visible);
  for (const key of tiles.loaded.keys()) { if (tiles.loaded.size <= keep) break; tiles.loaded.delete(key); }
  tiles.wanted.sort((a, b) => a[1] - b[1]);
  for (const [key] of tiles.wanted) {
    if (tiles.loading.size >= TILES_AT_ONCE) break;
    if (!tiles.loading.has(key) && !tiles.missing.has(key)) loadTile(key);
  }
  tiles.wanted = [];
  tiles.visible = 0;
}
function loadTile(key) {
  const script = element("script", { src: `${data.map.tiles.folder}/${key}.js`, onerror: () => missTile(key), onload: () => script.remove() });
  tiles.loading.set(key, script);
  document.head.append(script);
}
function missTile(key) {
  tiles.loading.get(key)?.remove();
  tiles.loading.delete(key);
  if (!tiles.missing.size) $("map-caption").append(element("b", { text: ` Parts of ${data.map.tiles.folder}/ are not beside this page: keep both together to see the map in full.` }));
  tiles.missing.add(key);
  draw();
}

// Called by the script of a tile.
async function takeTile(key, content) {
  const { rows, columns, light } = content;
  try {
    const values = await decode(content, rows, columns), shade = light ? await decode(light, rows, columns) : null;
    tiles.loaded.set(key, { rows, columns, values, light: shade, image: null, lit: null });
    tiles.loading.delete(key);
    draw();
  } catch {
    missTile(key);
  }
}

// Value of a layer and edge of its cell where a loaded tile has the place, the finest one; null where none has.
function tileValueAt(layer, x, y) {
  if (!isTiled(layer)) return null;
  const { edge, corner, levels } = data.map.tiles;
  for (let level = 0; level < levels.length; level++) {
    const cell = levels[level].resolution, across = Math.floor((x - corner[0]) / cell), down = Math.floor((corner[1] - y) / cell);
    const row = Math.floor(down / edge), column = Math.floor(across / edge);
    const tile = tiles.loaded.get(tileKey(layer.name, level, row, column));
    if (!tile) continue;
    const ix = across - column * edge, iy = tile.rows - 1 - (down - row * edge);
    return { value: ix < tile.columns && iy >= 0 ? tile.values[iy * tile.columns + ix] : NaN, cell };
  }
  return null;
}
