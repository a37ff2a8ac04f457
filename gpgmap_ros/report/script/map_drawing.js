// The map on its canvases: layer, trajectories, closures, submaps, axes, cursor.
let pending = false;
function draw() {
  if (pending || !shown.values.length) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; paint(); });
}

function paint() {
  paintLayer($("map"), view.layer, true);
  const beside = companionLayer();
  if (beside >= 0) paintLayer($("companion"), beside, false);
  if (data.map.tiles) requestTiles();
}
// whole: with axes, submaps and closures; the companion shows the same ground with less on it.
function paintLayer(canvas, k, whole) {
  const context = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1, map = data.map;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight], scale = scaleOf(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const [left, top] = screen(map.origin[0], map.origin[1] + map.height, canvas);
  context.imageSmoothingEnabled = map.resolution * scale < 3;
  context.imageSmoothingQuality = "high";
  context.drawImage(image(k), left, top, map.width * scale, map.height * scale);
  if (map.tiles) drawTiles(context, k);
  context.lineJoin = context.lineCap = "round";
  if (whole && view.submaps) drawSubmaps(context);
  for (const track of [...data.tracks].sort((a, b) => trackOrder(a) - trackOrder(b))) if (whole ? view[track.kind] : track.kind === mainTrack()) drawTrack(context, track, whole);
  if (whole && view.closures) drawClosures(context);
  if (whole) drawAxes(context, width, height);
  if (linked.index !== null) drawLinked(context);
  if (view.cursor) drawCursor(context, width, height);
}

function line(context, xs, ys) {
  context.beginPath();
  for (let k = 0; k < xs.length; k++) { const [u, v] = screen(xs[k], ys[k], context.canvas); if (k) context.lineTo(u, v); else context.moveTo(u, v); }
}
// Dash and colour; the truth is dark in both modes, because the ground under it is bright in both.
const TRACK = { odometry: ["--odometry", [5, 4]], corrected: ["--corrected", []], truth: ["--truth", [2, 4]] };
const trackOrder = (track) => ["truth", "odometry", "corrected"].indexOf(track.kind);
function drawTrack(context, track, whole) {
  const [name, dash] = TRACK[track.kind], colour = track.colour || css(name), width = whole ? 2 : 1.25;
  line(context, track.x, track.y);
  context.setLineDash([]);
  context.strokeStyle = "rgba(255,255,255,0.75)";
  context.lineWidth = 2 * width;
  if (track.kind !== "truth") context.stroke();
  context.setLineDash(dash);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke();
  context.setLineDash([]);
  const last = track.x.length - 1;
  if (last < 0 || !whole || track.kind === "truth") return;
  mark(context, track.x[0], track.y[0], colour, "circle");
  mark(context, track.x[last], track.y[last], colour, "square");
}
function mark(context, x, y, colour, shape) {
  const [u, v] = screen(x, y, context.canvas);
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
    if (v < 34 || v > height - 30) continue;
    context.strokeStyle = css("--ink"); context.lineWidth = 1;
    context.beginPath(); context.moveTo(0, v); context.lineTo(6, v); context.stroke();
    text(label(y), 10, v + 4, "left");
  }
  text(`y [m] ↑   x [m] →${cellsShown(context.canvas)}`, 10, 18, "left");
}
function drawCursor(context, width, height) {
  const [u, v] = screen(...view.cursor, context.canvas);
  context.strokeStyle = "rgba(20,20,20,0.45)";
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(u, 0); context.lineTo(u, height); context.moveTo(0, v); context.lineTo(width, v);
  context.stroke();
}
// The place on the trajectory that the charts point at.
function drawLinked(context) {
  const [x, y] = linkedPosition(), [u, v] = screen(x, y, context.canvas);
  context.beginPath();
  context.arc(u, v, 7, 0, 7);
  context.strokeStyle = "white";
  context.lineWidth = 5;
  context.stroke();
  context.strokeStyle = "#111";
  context.lineWidth = 2.5;
  context.stroke();
}
