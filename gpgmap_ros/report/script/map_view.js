// What part of the ground the map shows: metres to pixels of the main canvas and back.
const view = { scale: 1, x: 0, y: 0, layer: 0, shaded: true, odometry: true, corrected: true, truth: true, closures: true, submaps: false, cursor: null, chosen: null };
const shown = { values: [], images: new Map(), light: null, certain: null };

function size(canvas) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
}
// view: metres at the middle of the canvas, and CSS pixels per metre
function fit() {
  const map = data.map;
  view.scale = fittingScale($("map"));
  view.x = map.origin[0] + map.width / 2;
  view.y = map.origin[1] + map.height / 2;
  view.least = view.scale / 3;
}
function showAll() { fit(); view.fitted = true; draw(); }
// Pixels per metre at which the whole map fits, with room for axes on the main canvas.
function fittingScale(canvas) {
  const [across, along] = canvas.id === "map" ? [70, 60] : [16, 16], map = data.map;
  return Math.max(Math.min((canvas.clientWidth - across) / map.width, (canvas.clientHeight - along) / map.height), 1e-9);
}
// A canvas of another size is zoomed as much as the main one.
const scaleOf = (canvas) => (canvas.id === "map" ? view.scale : (view.scale * fittingScale(canvas)) / fittingScale($("map")));
function screen(x, y, canvas = $("map")) {
  const scale = scaleOf(canvas);
  return [canvas.clientWidth / 2 + (x - view.x) * scale, canvas.clientHeight / 2 - (y - view.y) * scale];
}
function world(u, v, canvas = $("map")) {
  const scale = scaleOf(canvas);
  return [view.x + (u - canvas.clientWidth / 2) / scale, view.y - (v - canvas.clientHeight / 2) / scale];
}
function zoom(factor, u, v) {
  const canvas = $("map");
  u ??= canvas.clientWidth / 2;
  v ??= canvas.clientHeight / 2;
  const [x, y] = world(u, v);
  view.scale = Math.min(Math.max(view.scale * factor, view.least), 60 / finestCell());
  const [x1, y1] = world(u, v);
  view.x += x - x1;
  view.y += y - y1;
  view.fitted = false;
  draw();
}
// Value of a layer of the page's own map at a place; NaN outside and where nothing is known.
function valueAt(k, x, y) {
  const map = data.map, ix = Math.floor((x - map.origin[0]) / map.resolution), iy = Math.floor((y - map.origin[1]) / map.resolution);
  return ix >= 0 && iy >= 0 && ix < map.columns && iy < map.rows ? shown.values[k][iy * map.columns + ix] : NaN;
}
const layerNamed = (name) => (data.map ? data.map.layers.findIndex((layer) => layer.name === name) : -1);
