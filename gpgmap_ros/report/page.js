"use strict";
// Draws the report from the JSON in the page. No library, no network.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Enough digits to tell neighbouring values of a scale apart, no more.
function number(value, span = Math.abs(value)) {
  if (value === null || !Number.isFinite(value)) return "–";
  const digits = span >= 100 ? 0 : span >= 10 ? 1 : span >= 1 ? 2 : span >= 0.1 ? 3 : 4;
  return value.toFixed(digits).replace("-", "−");
}

// ------------------------------------------------------------------ layers

// 16-bit numbers, differences along each row, Deflate, base64: see gpgmap_ros/report/encoding.py
async function decode(layer, rows, columns) {
  const packed = Uint8Array.from(atob(layer.data), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const numbers = new Uint16Array(await new Response(stream).arrayBuffer());
  const values = new Float32Array(rows * columns);
  const step = (layer.high - layer.low) / 65534;
  for (let y = 0, k = 0; y < rows; y++) {
    let running = 0;
    for (let x = 0; x < columns; x++, k++) {
      running = (running + numbers[k]) & 0xffff;
      values[k] = running === 0 ? NaN : layer.low + (running - 1) * step;
    }
  }
  return values;
}

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

// ------------------------------------------------------------------ the map

const view = { scale: 1, x: 0, y: 0, layer: 0, shaded: true, odometry: true, corrected: true, truth: true, closures: true, submaps: false, cursor: null, chosen: null };
const shown = { values: [], images: new Map(), light: null };

async function startMap() {
  const map = data.map, canvas = $("map");
  if (!map) {
    $("map-message").style.display = "flex";
    $("map-message").textContent = "There is no map: no cloud was fused.";
    return;
  }
  map.width = map.columns * map.resolution;
  map.height = map.rows * map.resolution;
  try {
    shown.values = await Promise.all(map.layers.map((layer) => decode(layer, map.rows, map.columns)));
  } catch (error) {
    $("map-message").style.display = "flex";
    $("map-message").textContent = `This browser can't unpack the map (${error.message}): use one from 2023 or later.`;
    return;
  }
  const certain = map.certain ? await decode(map.certain, map.rows, map.columns) : null;
  shown.light = relief(shown.values[0], map.rows, map.columns, map.resolution, certain);
  map.layers.forEach((layer, k) =>
    $("layers").append(element("button", { role: "tab", "aria-selected": k === 0, "data-layer": layer.name, text: layer.title, onclick: () => choose(k) })),
  );
  const kinds = new Set(data.tracks.map((track) => track.kind));
  const overlays = [["shaded", "relief", null]];
  if (kinds.has("odometry")) overlays.push(["odometry", "odometry", "--odometry"]);
  if (kinds.has("corrected")) overlays.push(["corrected", "corrected", "--corrected"]);
  if (kinds.has("truth")) overlays.push(["truth", "truth", "--ink"]);
  if (data.closures.length) overlays.push(["closures", "closures", "--good"]);
  if (data.submaps.length) overlays.push(["submaps", "submaps", null]);
  for (const [name, label, colour] of overlays) {
    const box = element("input", { type: "checkbox", "data-overlay": name, onchange: (event) => { view[name] = event.target.checked; draw(); } });
    box.checked = view[name];
    const parts = [box];
    if (colour) parts.push(element("span", { class: name === "odometry" ? "key dashed" : "key", style: `color: var(${colour})` }));
    $("overlays").append(element("label", {}, ...parts, label));
  }
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY); }, { passive: false });
  canvas.addEventListener("dblclick", showAll);
  canvas.addEventListener("keydown", onKey);
  dragging(canvas);
  $("zoom-in").onclick = () => zoom(1.5);
  $("zoom-out").onclick = () => zoom(1 / 1.5);
  $("zoom-all").onclick = showAll;
  new ResizeObserver(() => { size(); draw(); }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  size();
  showAll();
  choose(0);
  readout();
}

function size() {
  const canvas = $("map"), ratio = window.devicePixelRatio || 1;
  const middle = canvas.width ? world(canvas.clientWidth / 2, canvas.clientHeight / 2) : null;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  if (middle && view.fitted) fit();
}

// view: metres at the middle of the canvas, and CSS pixels per metre
function fit() {
  const canvas = $("map"), map = data.map;
  view.scale = Math.min((canvas.clientWidth - 70) / map.width, (canvas.clientHeight - 60) / map.height);
  view.x = map.origin[0] + map.width / 2;
  view.y = map.origin[1] + map.height / 2;
  view.least = view.scale / 3;
}
function showAll() { fit(); view.fitted = true; draw(); }
function screen(x, y) {
  const canvas = $("map");
  return [canvas.clientWidth / 2 + (x - view.x) * view.scale, canvas.clientHeight / 2 - (y - view.y) * view.scale];
}
function world(u, v) {
  const canvas = $("map");
  return [view.x + (u - canvas.clientWidth / 2) / view.scale, view.y - (v - canvas.clientHeight / 2) / view.scale];
}
function zoom(factor, u, v) {
  const canvas = $("map");
  u ??= canvas.clientWidth / 2;
  v ??= canvas.clientHeight / 2;
  const [x, y] = world(u, v);
  view.scale = Math.min(Math.max(view.scale * factor, view.least), 60 / data.map.resolution);
  const [x1, y1] = world(u, v);
  view.x += x - x1;
  view.y += y - y1;
  view.fitted = false;
  draw();
}
function onKey(event) {
  const step = 60 / view.scale;
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (event.key === "+" || event.key === "=") zoom(1.5);
  else if (event.key === "-") zoom(1 / 1.5);
  else if (event.key === "0") showAll();
  else if (moves[event.key]) { view.x += moves[event.key][0]; view.y += moves[event.key][1]; view.fitted = false; draw(); }
  else return;
  event.preventDefault();
}
function dragging(canvas) {
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); fingers.set(event.pointerId, [event.offsetX, event.offsetY]); moved = 0; });
  canvas.addEventListener("pointermove", (event) => {
    const here = [event.offsetX, event.offsetY], before = fingers.get(event.pointerId);
    if (before) {
      const other = [...fingers].find(([id]) => id !== event.pointerId);
      if (other) {
        const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
        zoom(distance(here, other[1]) / Math.max(distance(before, other[1]), 1), (here[0] + other[1][0]) / 2, (here[1] + other[1][1]) / 2);
      } else {
        view.x -= (here[0] - before[0]) / view.scale;
        view.y += (here[1] - before[1]) / view.scale;
        view.fitted = false;
      }
      moved += Math.abs(here[0] - before[0]) + Math.abs(here[1] - before[1]);
      if (moved > 4) canvas.classList.add("moving");
      fingers.set(event.pointerId, here);
    }
    view.cursor = here;
    draw();
    readout();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => {
    fingers.delete(event.pointerId);
    canvas.classList.remove("moving");
    if (end === "pointerup" && moved <= 4) pick(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerleave", () => { view.cursor = null; draw(); readout(); });
}

// A click near a closure's line chooses it.
function pick(u, v) {
  if (!view.closures) return;
  let best = null, nearest = 9;
  data.closures.forEach((closure, k) => {
    if (!closure.accepted || !closure.drawn) return;
    const [ax, ay] = screen(...closure.from), [bx, by] = screen(...closure.to);
    const length = Math.hypot(bx - ax, by - ay) || 1;
    const along = Math.min(Math.max(((u - ax) * (bx - ax) + (v - ay) * (by - ay)) / (length * length), 0), 1);
    const distance = Math.hypot(u - ax - along * (bx - ax), v - ay - along * (by - ay));
    if (distance < nearest) [best, nearest] = [k, distance];
  });
  if (best !== null) chooseClosure(best, true);
}

function choose(k) {
  view.layer = k;
  document.querySelectorAll("#layers button").forEach((button, i) => button.setAttribute("aria-selected", i === k));
  legend(data.map.layers[k]);
  draw();
}

function image() {
  // shading would change the colours by which the other layers are read
  const layer = data.map.layers[view.layer], lit = view.shaded && layer.shaded, key = `${view.layer} ${lit}`;
  if (!shown.images.has(key)) shown.images.set(key, painted(layer, shown.values[view.layer], lit ? shown.light : null, data.map.rows, data.map.columns));
  return shown.images.get(key);
}

let pending = false;
function draw() {
  if (pending || !shown.values.length) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; paint(); });
}

function paint() {
  const canvas = $("map"), context = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1, map = data.map;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  const [left, top] = screen(map.origin[0], map.origin[1] + map.height);
  context.imageSmoothingEnabled = map.resolution * view.scale < 3;
  context.imageSmoothingQuality = "high";
  context.drawImage(image(), left, top, map.width * view.scale, map.height * view.scale);
  context.lineJoin = context.lineCap = "round";
  if (view.submaps) drawSubmaps(context);
  for (const track of data.tracks) if (view[track.kind]) drawTrack(context, track);
  if (view.closures) drawClosures(context);
  drawAxes(context, canvas.clientWidth, canvas.clientHeight);
  if (view.cursor) drawCursor(context, canvas.clientWidth, canvas.clientHeight);
}

function line(context, xs, ys) {
  context.beginPath();
  for (let k = 0; k < xs.length; k++) { const [u, v] = screen(xs[k], ys[k]); if (k) context.lineTo(u, v); else context.moveTo(u, v); }
}
const TRACK = { odometry: ["--odometry", [5, 4]], corrected: ["--corrected", []], truth: ["--ink", [2, 3]] };
function drawTrack(context, track) {
  const [colour, dash] = TRACK[track.kind];
  line(context, track.x, track.y);
  context.setLineDash([]);
  context.strokeStyle = "rgba(255,255,255,0.75)";
  context.lineWidth = 4;
  context.stroke();
  context.setLineDash(dash);
  context.strokeStyle = css(colour);
  context.lineWidth = 2;
  context.stroke();
  context.setLineDash([]);
  const last = track.x.length - 1;
  if (last < 0) return;
  mark(context, track.x[0], track.y[0], css(colour), "circle");
  mark(context, track.x[last], track.y[last], css(colour), "square");
}
function mark(context, x, y, colour, shape) {
  const [u, v] = screen(x, y);
  context.beginPath();
  if (shape === "circle") context.arc(u, v, 5, 0, 7); else context.rect(u - 4.5, v - 4.5, 9, 9);
  context.fillStyle = colour;
  context.strokeStyle = "white";
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
}
function drawClosures(context) {
  data.closures.forEach((closure, k) => {
    if (!closure.drawn || (!closure.accepted && k !== view.chosen)) return;
    line(context, [closure.from[0], closure.to[0]], [closure.from[1], closure.to[1]]);
    context.strokeStyle = "rgba(255,255,255,0.8)";
    context.lineWidth = k === view.chosen ? 7 : 4;
    context.stroke();
    context.strokeStyle = closure.accepted ? css("--good") : css("--bad");
    context.lineWidth = k === view.chosen ? 4 : 2;
    context.stroke();
    for (const [x, y] of [closure.from, closure.to]) mark(context, x, y, closure.accepted ? css("--good") : css("--bad"), "circle");
  });
}
function drawSubmaps(context) {
  context.font = "10px " + css("--sans");
  for (const submap of data.submaps) {
    const xs = submap.outline.map((p) => p[0]), ys = submap.outline.map((p) => p[1]);
    line(context, [...xs, xs[0]], [...ys, ys[0]]);
    context.strokeStyle = "rgba(20,20,20,0.35)";
    context.lineWidth = 1;
    context.stroke();
    const [u, v] = screen(submap.x, submap.y);
    context.strokeStyle = "rgba(255,255,255,0.9)";
    context.lineWidth = 3;
    context.strokeText(submap.id, u + 6, v - 4);
    context.fillStyle = "#111";
    context.fillText(submap.id, u + 6, v - 4);
  }
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= least);
}
function drawAxes(context, width, height) {
  context.font = "11px " + css("--sans");
  const step = niceStep(90 / view.scale), digits = Math.max(0, -Math.floor(Math.log10(step)));
  const label = (value) => (Math.abs(value) < step / 1e6 ? 0 : value).toFixed(digits).replace("-", "−");
  const [x0, y1] = world(0, 0), [x1, y0] = world(width, height);
  const text = (string, u, v, align) => {
    context.textAlign = align;
    context.lineWidth = 3;
    context.strokeStyle = css("--unknown");
    context.strokeText(string, u, v);
    context.fillStyle = css("--ink");
    context.fillText(string, u, v);
  };
  context.strokeStyle = css("--ink");
  context.lineWidth = 1;
  for (let x = Math.ceil(x0 / step) * step; x < x1; x += step) {
    const [u] = screen(x, 0);
    if (u < 40 || u > width - 30) continue;
    context.strokeStyle = css("--ink"); context.lineWidth = 1;
    context.beginPath(); context.moveTo(u, height); context.lineTo(u, height - 6); context.stroke();
    text(label(x), u, height - 10, "center");
  }
  for (let y = Math.ceil(y0 / step) * step; y < y1; y += step) {
    const [, v] = screen(0, y);
    if (v < 20 || v > height - 30) continue;
    context.strokeStyle = css("--ink"); context.lineWidth = 1;
    context.beginPath(); context.moveTo(0, v); context.lineTo(6, v); context.stroke();
    text(label(y), 10, v + 4, "left");
  }
  text("y [m] ↑   x [m] →", 10, 18, "left");
}
function drawCursor(context, width, height) {
  const [u, v] = view.cursor;
  context.strokeStyle = "rgba(20,20,20,0.35)";
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(u, 0); context.lineTo(u, height); context.moveTo(0, v); context.lineTo(width, v);
  context.stroke();
}

function readout() {
  const map = data.map, node = $("values");
  node.replaceChildren();
  const item = (name, value) => node.append(element("span", {}, element("i", { text: name }), element("b", { text: value })));
  if (!view.cursor) { node.append(element("span", { class: "hint", text: "Point at the map to read its values; wheel zooms, drag moves, a click on a closure shows it." })); return; }
  const [x, y] = world(...view.cursor);
  const ix = Math.floor((x - map.origin[0]) / map.resolution), iy = Math.floor((y - map.origin[1]) / map.resolution);
  item("x", `${x.toFixed(2)} m`);
  item("y", `${y.toFixed(2)} m`);
  const inside = ix >= 0 && iy >= 0 && ix < map.columns && iy < map.rows;
  map.layers.forEach((layer, k) => {
    const value = inside ? shown.values[k][iy * map.columns + ix] : NaN;
    item(layer.title, Number.isNaN(value) ? "unknown" : `${number(value, layer.high - layer.low)} ${layer.unit}`.trim());
  });
}

function legend(layer) {
  const table = colours(layer), stops = [];
  for (let k = 0; k <= 32; k++) { const i = 3 * Math.round((255 * k) / 32); stops.push(`rgb(${table[i]},${table[i + 1]},${table[i + 2]})`); }
  const [low, high] = layer.limits, ticks = element("div", { class: "ticks" });
  for (const at of [0, 0.5, 1]) {
    const value = layer.logarithmic ? low * (high / low) ** at : low + at * (high - low);
    ticks.append(element("span", { style: `left: ${100 * at}%`, text: number(value, layer.logarithmic ? value : high - low) }));
  }
  const unit = layer.unit ? ` [${layer.unit}]` : "";
  $("legend").replaceChildren(`${layer.title}${unit}${layer.logarithmic ? ", log scale" : ""}`, element("div", { class: "scale", style: `background: linear-gradient(90deg, ${stops.join(",")})` }), ticks);
}

// ------------------------------------------------------------------ closures

function closureTable() {
  if (!data.closures.length) { $("closure-section").remove(); return; }
  const head = element("thead", {}, element("tr", {}, ...[["submaps", ""], ["probability", "number"], ["shared", "number"], ["± x, y", "number"]].map(([text, kind]) => element("th", { class: kind, text }))));
  const body = element("tbody");
  data.closures.forEach((closure, k) => {
    const link = element("a", { href: `#closure-${closure.a}-${closure.b}` }, element("span", { class: closure.accepted ? "dot yes" : "dot" }), `${closure.a} – ${closure.b}`);
    const std = closure.std ? `${number(Math.max(closure.std[0], closure.std[1]), 0.5)} m` : "–";
    body.append(element("tr", { "data-closure": `${closure.a}-${closure.b}`, title: closure.reason, onclick: (event) => { event.preventDefault(); chooseClosure(k, false); } },
      element("td", {}, link), element("td", { class: "number", text: closure.probability.toFixed(3) }),
      element("td", { class: "number", text: `${Math.round(100 * closure.overlap)} %` }), element("td", { class: "number", text: std })));
  });
  $("closure-table").append(head, body);
  const first = data.closures.findIndex((closure) => closure.pictures);
  const wanted = data.closures.findIndex((closure) => location.hash === `#closure-${closure.a}-${closure.b}`);
  if (wanted >= 0) chooseClosure(wanted, true);
  else if (first >= 0) chooseClosure(first, false);
}

function chooseClosure(k, scroll) {
  const closure = data.closures[k];
  view.chosen = k;
  document.querySelectorAll("#closure-table tbody tr").forEach((row, i) => row.classList.toggle("chosen", i === k));
  history.replaceState(null, "", `#closure-${closure.a}-${closure.b}`);
  const node = $("closure-view");
  node.replaceChildren();
  if (closure.pictures) {
    const bar = niceStep(closure.width / 5), trio = element("div", { class: "trio" });
    const limit = closure.residual.limit;
    for (const [name, title] of [["target", `Submap ${closure.a}, seen first`], ["source", `Submap ${closure.b}, laid over it`], ["difference", "Difference"]]) {
      const picture = element("div", { class: "picture" }, element("img", { src: closure.pictures[name], alt: title, width: closure.size[0], height: closure.size[1] }),
        element("div", { class: "bar", style: `width: ${(100 * bar) / closure.width}%` }, element("span", { text: `${bar} m` })));
      const parts = [element("p", { text: title }), picture];
      picture.classList.add(name);
      if (name === "difference") parts.push(
        element("div", { class: "gradient", style: "background: linear-gradient(90deg, #053061, #2166ac, #4393c3, #92c5de, #d1e5f0, #f7f7f7, #fddbc7, #f4a582, #d6604d, #b2182b, #67001f)" }),
        element("div", {}, element("span", { text: `−${number(limit)} m` }), element("span", { text: "0" }), element("span", { text: `${number(limit)} m` })));
      trio.append(element("div", {}, ...parts));
    }
    node.append(trio);
  }
  const [x, y, z] = closure.shift;
  const caption = element("figcaption", {}, element("b", { text: closure.accepted ? "Accepted: " : "Not accepted: " }), `${closure.reason}. `);
  caption.append(`Submap ${closure.b} lies at (${number(x, 5)}, ${number(y, 5)}, ${number(z, 5)}) m, turned by ${number(closure.yaw, 20)}°, in the frame of submap ${closure.a}.`);
  if (closure.std) caption.append(` Standard deviations: x ${number(closure.std[0], 0.5)} m, y ${number(closure.std[1], 0.5)} m, z ${number(closure.std[2], 0.5)} m, yaw ${number((closure.std[5] * 180) / Math.PI, 0.5)}°.`);
  if (closure.residual && closure.residual.median !== null) caption.append(` They share ${Math.round(closure.shared)} m²; heights there differ by ${number(closure.residual.median, 0.5)} m (median), ${number(closure.residual.rms, 0.5)} m (rms).`);
  node.append(caption);
  draw();
  if (scroll) $("closure-section").scrollIntoView({ block: "nearest" });
}

// ------------------------------------------------------------------ charts and tables

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
function chart(title, series, yLabel, xLabel) {
  const [width, height, left, right, top, bottom] = [560, 200, 46, 8, 8, 34];
  const xs = series.flatMap((s) => s.x), ys = series.flatMap((s) => s.y);
  const [xLow, xHigh] = [Math.min(...xs), Math.max(...xs)];
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (high - low < 1e-6) high = low + 1;
  const step = niceStep((high - low) / 4);
  low = Math.floor(low / step) * step;
  high = Math.ceil(high / step) * step;
  const u = (x) => left + ((x - xLow) / (xHigh - xLow || 1)) * (width - left - right), v = (y) => height - bottom - ((y - low) / (high - low)) * (height - top - bottom);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  const text = (string, x, y, anchor) => { const node = svg("text", { x, y, "text-anchor": anchor }); node.textContent = string; root.append(node); };
  for (let y = low; y <= high + step / 2; y += step) {
    root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: v(y), y2: v(y) }));
    text(number(Math.abs(y) < step / 1e6 ? 0 : y, step * 3), left - 6, v(y) + 4, "end");
  }
  const xStep = niceStep((xHigh - xLow) / 6 || 1);
  for (let x = Math.ceil(xLow / xStep) * xStep; x <= xHigh + xStep / 1e6; x += xStep) text(number(x, xStep * 5), u(x), height - bottom + 15, "middle");
  text(xLabel, (left + width - right) / 2, height - 3, "middle");
  for (const s of series) {
    const path = s.x.map((x, k) => `${k ? "L" : "M"}${u(x).toFixed(1)} ${v(s.y[k]).toFixed(1)}`).join("");
    root.append(svg("path", { d: path, fill: "none", stroke: `var(${s.colour})`, "stroke-width": 1.8, "stroke-dasharray": s.dash || "" }));
  }
  const heading = element("p", {}, `${title} [${yLabel}]  `);
  for (const s of series) if (s.name) heading.append(" ", element("span", { class: s.dash ? "key dashed" : "key", style: `color: var(${s.colour}); vertical-align: middle` }), ` ${s.name} `);
  return element("div", {}, heading, root);
}
// The tracks of one kind, drive after drive; `starts` are the indices at which drives begin.
function joined(kind) {
  const all = { x: [], y: [], z: [], time: [], starts: new Set() };
  for (const track of data.tracks.filter((t) => t.kind === kind)) {
    all.starts.add(all.x.length);
    for (const name of ["x", "y", "z", "time"]) all[name].push(...track[name]);
  }
  return all;
}
function charts() {
  const odometry = joined("odometry"), corrected = joined("corrected"), count = odometry.x.length;
  if (count < 2) { $("way-section").remove(); return; }
  const step = (k) => (odometry.starts.has(k) ? 0 : Math.hypot(odometry.x[k] - odometry.x[k - 1], odometry.y[k] - odometry.y[k - 1], odometry.z[k] - odometry.z[k - 1]));
  const way = [0];
  for (let k = 1; k < count; k++) way.push(way[k - 1] + step(k));
  const heights = [{ name: "odometry", x: way, y: odometry.z, colour: "--odometry", dash: "5 4" }];
  if (corrected.x.length) heights.push({ name: "corrected", x: way, y: corrected.z, colour: "--corrected" });
  $("charts").append(chart("Height", heights, "m", "way [m]"));
  if (corrected.x.length) {
    const moved = way.map((_, k) => Math.hypot(corrected.x[k] - odometry.x[k], corrected.y[k] - odometry.y[k], corrected.z[k] - odometry.z[k]));
    $("charts").append(chart("Correction by the closures", [{ x: way, y: moved, colour: "--corrected" }], "m", "way [m]"));
  } else {
    const within = way.map((_, k) => k).filter((k) => !odometry.starts.has(k));
    const speed = within.map((k) => step(k) / Math.max(odometry.time[k] - odometry.time[k - 1], 1e-3));
    $("charts").append(chart("Speed", [{ x: within.map((k) => way[k]), y: speed, colour: "--odometry" }], "m/s", "way [m]"));
  }
}
function bars(id, rows, format) {
  const node = $(id), most = Math.max(...rows.map((row) => row[1]), 1e-12), total = rows.reduce((sum, row) => sum + row[1], 0);
  if (!rows.length) { node.parentElement.remove(); return; }
  const grid = element("div", { class: "bars" });
  for (const [name, value] of rows) grid.append(element("span", { text: name }), element("div", { class: "track" }, element("div", { style: `width: ${(100 * value) / most}%` })),
    element("span", { class: "value" }, `${format(value)} `, element("small", { text: `${((100 * value) / (total || 1)).toFixed(0)} %` })));
  node.append(grid);
}
function settingsTable(rows, withDefault) {
  const names = withDefault ? ["setting", "value", "default", "meaning"] : ["setting", "value", "meaning"];
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...names.map((text) => element("th", { text })))));
  for (const row of rows) {
    const unit = row.unit ? ` ${row.unit}` : "", cells = [row.name, row.value + (row.value === "" ? "–" : unit)];
    if (withDefault) cells.push(row.default === "" ? "–" : row.default + unit);
    table.append(element("tr", {}, ...[...cells, row.meaning].map((text) => element("td", { text }))));
  }
  return table;
}

function drives() {
  if (!data.drives.length) { $("drive-section").remove(); return; }
  const names = [["drive", ""], ["begins", ""], ["clouds", "number"], ["way", "number"], ["submaps", "number"], ["where", ""], ["why it is a drive of its own", ""]];
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...names.map(([text, kind]) => element("th", { class: kind, text })))));
  const body = element("tbody");
  for (const drive of data.drives) {
    const begins = new Date(1000 * drive.first_stamp).toISOString().slice(0, 19).replace("T", " ");
    body.append(element("tr", {}, element("td", { text: drive.number }), element("td", { text: `${begins} UTC` }), element("td", { class: "number", text: drive.clouds }),
      element("td", { class: "number", text: `${drive.way_m.toFixed(1)} m` }), element("td", { class: "number", text: drive.submaps }),
      element("td", { text: drive.in_map ? "in the map of the run" : drive.folder }), element("td", { text: drive.because || "–" })));
  }
  table.append(body);
  $("drives").append(table);
}

function text() {
  for (const id of ["title", "subtitle", "abstract", "made"]) $(id).textContent = data[id];
  for (const [name, value] of data.facts) $("facts").append(element("div", {}, element("dt", { text: name }), element("dd", { text: value })));
  for (const warning of data.warnings) $("warnings").append(element("p", { class: "warning", text: warning }));
  if (data.map) $("map-caption").append(element("b", { text: "The map " }), `in ${data.map.coordinates}, cells of ${data.map.resolution} m; grey is unknown ground. Light from the north-west. ${data.map.note} `,
    data.tracks.length ? "A circle marks where the drive begins, a square where it ends." : "");
  const changed = data.settings.filter((row) => row.changed);
  $("changed").append(changed.length ? settingsTable(changed, true) : element("p", { text: "All settings have their defaults." }));
  $("settings").append(settingsTable(data.settings, false));
  if (data.files.length) $("files").append(element("ul", {}, ...data.files.map(([name, what]) => element("li", {}, element("a", { href: encodeURI(name), text: name }), ` ${what}`))));
}

text();
bars("timings", data.timings, (value) => `${value.toFixed(value < 10 ? 2 : 1)} s`);
bars("fates", data.fates, (value) => value.toLocaleString("en"));
drives();
charts();
closureTable();
startMap().then(() => document.documentElement.setAttribute("data-ready", "yes"));
