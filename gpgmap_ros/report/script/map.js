// The map figure: layers to choose, the uncertainty beside them, values under the cursor.
async function startMap() {
  const map = data.map;
  if (!map) {
    $("map-figure").classList.add("alone");
    tellMap("There is no map: no cloud was fused.");
    return;
  }
  map.width = map.columns * map.resolution;
  map.height = map.rows * map.resolution;
  try {
    shown.values = await Promise.all(map.layers.map((layer) => decode(layer, map.rows, map.columns)));
  } catch (error) {
    $("map-figure").classList.add("alone");
    tellMap(`This browser can't unpack the map (${error.message}): use one from 2023 or later.`);
    return;
  }
  shown.certain = map.certain ? await decode(map.certain, map.rows, map.columns) : null;
  shown.light = relief(shown.values[0], map.rows, map.columns, map.resolution, shown.certain);
  map.layers.forEach((layer, k) =>
    $("layers").append(element("button", { role: "tab", "aria-selected": k === 0, "data-layer": layer.name, text: layer.title, onclick: () => choose(k) })),
  );
  overlayBoxes();
  if (companionLayer() < 0) $("companion-panel").remove();
  listenToMap($("map"));
  if ($("companion")) listenToCompanion($("companion"));
  for (const canvas of [$("map"), $("companion")]) if (canvas) {
    size(canvas);
    new ResizeObserver(() => { size(canvas); if (view.fitted) fit(); draw(); }).observe(canvas);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  showAll();
  choose(0);
  readout();
}
function tellMap(text) {
  $("map-message").style.display = "flex";
  $("map-message").textContent = text;
}

function overlayBoxes() {
  const kinds = new Set(data.tracks.map((track) => track.kind));
  const overlays = [["shaded", "relief", null]];
  if (kinds.has("odometry")) overlays.push(["odometry", "odometry", "--odometry"]);
  if (kinds.has("corrected")) overlays.push(["corrected", "corrected", "--corrected"]);
  if (kinds.has("truth")) overlays.push(["truth", "truth", "--ink"]);
  if (data.closures.length) overlays.push(["closures", "closures", "--good"]);
  if (data.submaps.length) overlays.push(["submaps", "submaps", null]);
  for (const [name, label, colour] of overlays) {
    const box = element("input", { type: "checkbox", "data-overlay": name, onchange: (event) => { view[name] = event.target.checked; draw(); drawTerrain(); } });
    box.checked = view[name];
    const parts = [box];
    if (colour) parts.push(element("span", { class: { odometry: "key dashed", truth: "key dotted" }[name] || "key", style: `color: var(${colour})` }));
    $("overlays").append(element("label", {}, ...parts, label));
  }
  // sessions of a merge have a colour each
  for (const track of data.tracks.filter((item) => item.colour)) $("overlays").append(element("span", { class: "session" }, element("span", { class: "key", style: `color: ${track.colour}` }), track.name));
}

function listenToMap(canvas) {
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY); }, { passive: false });
  canvas.addEventListener("dblclick", showAll);
  canvas.addEventListener("keydown", onKey);
  dragging(canvas);
  $("zoom-in").onclick = () => zoom(1.5);
  $("zoom-out").onclick = () => zoom(1 / 1.5);
  $("zoom-all").onclick = showAll;
}
function listenToCompanion(canvas) {
  canvas.addEventListener("pointermove", (event) => pointAt(world(event.offsetX, event.offsetY, canvas)));
  canvas.addEventListener("pointerleave", () => pointAt(null));
  canvas.addEventListener("click", () => choose(companionLayer()));
}

// The uncertainty is always beside the map; beside the uncertainty it is the elevation.
function companionLayer() {
  const std = layerNamed("standard_deviation");
  return std < 0 ? -1 : view.layer === std ? layerNamed("elevation") : std;
}

function choose(k) {
  view.layer = k;
  document.querySelectorAll("#layers button").forEach((button, i) => button.setAttribute("aria-selected", i === k));
  legend($("legend"), data.map.layers[k]);
  const beside = companionLayer();
  if (beside >= 0) {
    const layer = data.map.layers[beside];
    $("companion-title").textContent = layer.title + (layer.unit ? ` [${layer.unit}]` : "");
    legend($("companion-legend"), layer, false);
  }
  draw();
  paintTerrain(k);
}

function image(k) {
  // shading would change the colours by which the other layers are read
  const layer = data.map.layers[k], lit = view.shaded && layer.shaded, key = `${k} ${lit}`;
  if (!shown.images.has(key)) shown.images.set(key, painted(layer, shown.values[k], lit ? shown.light : null, data.map.rows, data.map.columns));
  return shown.images.get(key);
}

// The cursor at a place in metres, on all maps; null for nowhere. Charts follow where it is near the trajectory.
function pointAt(place) {
  view.cursor = place;
  linkNearest(place);
  draw();
  readout();
}

function hint() {
  const closures = data.closures.length ? ", a click on a closure shows it" : "";
  const charts = data.tracks.length ? " Pointing at a chart below shows the place here." : "";
  return `Point at a map to read its values; wheel, fingers or + and − zoom, drag or arrows move${closures}.${charts}`;
}
function readout() {
  const map = data.map, node = $("values");
  node.replaceChildren();
  const item = (name, value) => node.append(element("span", {}, element("i", { text: name }), element("b", { text: value })));
  if (!view.cursor) { node.append(element("span", { class: "hint", text: hint() })); return; }
  const [x, y] = view.cursor;
  item("x", `${x.toFixed(2)} m`);
  item("y", `${y.toFixed(2)} m`);
  map.layers.forEach((layer, k) => {
    const fine = tileValueAt(layer, x, y), value = fine ? fine.value : valueAt(k, x, y);
    // small cells tell more digits apart, and so does a logarithmic scale where values are small
    const span = Math.min(layer.high - layer.low, fine ? fine.cell : Infinity, layer.logarithmic ? value : Infinity);
    item(layer.title, Number.isNaN(value) ? "unknown" : `${number(value, span)} ${layer.unit}`.trim());
  });
}

// The colour scale of a layer; titled unless its panel is.
function legend(node, layer, titled = true) {
  const table = colours(layer), stops = [];
  for (let k = 0; k <= 32; k++) { const i = 3 * Math.round((255 * k) / 32); stops.push(`rgb(${table[i]},${table[i + 1]},${table[i + 2]})`); }
  const [low, high] = layer.limits, ticks = element("div", { class: "ticks" });
  for (const at of [0, 0.5, 1]) {
    const value = layer.logarithmic ? low * (high / low) ** at : low + at * (high - low);
    ticks.append(element("span", { style: `left: ${100 * at}%`, text: number(value, layer.logarithmic ? value : high - low) }));
  }
  const unit = layer.unit ? ` [${layer.unit}]` : "", title = titled ? `${layer.title}${unit}${layer.logarithmic ? ", log scale" : ""}` : "";
  node.replaceChildren(title, element("div", { class: "scale", style: `background: linear-gradient(90deg, ${stops.join(",")})` }), ticks);
}
