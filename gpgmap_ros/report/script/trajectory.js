// The trajectory: before and after loop closing, its height over the ground, and by how much closures moved it.
function trajectorySection() {
  const odometry = joined("odometry"), corrected = joined("corrected"), count = odometry.x.length;
  if (count < 2) { $("trajectory-section").remove(); return; }
  const closed = corrected.x.length === count;
  if (closed) beforeAfter();
  const step = (k) => (odometry.starts.has(k) ? 0 : Math.hypot(odometry.x[k] - odometry.x[k - 1], odometry.y[k] - odometry.y[k - 1], odometry.z[k] - odometry.z[k - 1]));
  const distance = [0];
  for (let k = 1; k < count; k++) distance.push(distance[k - 1] + step(k));
  const all = distance.map((_, k) => k);
  $("charts").append(chart("Height", heightSeries(distance, odometry, closed ? corrected : null), "m", "distance [m]", all));
  if (closed) {
    const moved = all.map((k) => Math.hypot(corrected.x[k] - odometry.x[k], corrected.y[k] - odometry.y[k], corrected.z[k] - odometry.z[k]));
    $("charts").append(chart("Correction by the closures", [{ x: distance, y: moved, colour: "--corrected" }], "m", "distance [m]", all));
  } else {
    const within = all.filter((k) => !odometry.starts.has(k));
    const speed = within.map((k) => step(k) / Math.max(odometry.time[k] - odometry.time[k - 1], 1e-3));
    $("charts").append(chart("Speed", [{ x: within.map((k) => distance[k]), y: speed, colour: "--odometry" }], "m/s", "distance [m]", within));
  }
}

// Heights of the robot, and of the ground under it with two standard deviations, as the map has it.
function heightSeries(distance, odometry, corrected) {
  const series = [{ name: "odometry", x: distance, y: odometry.z, colour: "--odometry", dash: "5 4" }];
  if (corrected) series.push({ name: "corrected", x: distance, y: corrected.z, colour: "--corrected" });
  const elevation = layerNamed("elevation"), std = layerNamed("standard_deviation"), along = corrected || odometry;
  if (shown.values.length && elevation >= 0) {
    const ground = distance.map((_, k) => valueAt(elevation, along.x[k], along.y[k]));
    if (ground.some(Number.isFinite)) {
      series.push({ name: "ground", x: distance, y: ground, colour: "--soft" });
      if (std >= 0) series.push({ name: "± 2 std", x: distance, y: ground, band: distance.map((_, k) => 2 * valueAt(std, along.x[k], along.y[k])), colour: "--soft" });
    }
  }
  return series;
}

function beforeAfter() {
  const accepted = data.closures.filter((closure) => closure.accepted && closure.drawn);
  const all = data.tracks.flatMap((track) => track.x.map((x, k) => [x, track.y[k]]));
  const frame = planFrame(all), drawn = (kind) => data.tracks.filter((track) => track.kind === kind);
  const truth = drawn("truth"), node = $("before-after");
  node.append(plan(frame, "Before: odometry", [...truth, ...drawn("odometry")], [], endError("odometry")));
  node.append(plan(frame, "After: loops closed", [...truth, ...drawn("corrected")], accepted, endError("corrected")));
}
// Where the true trajectory is known: by how much this one misses its end.
function endError(kind) {
  const truth = joined("truth"), track = joined(kind), last = track.x.length - 1;
  if (truth.x.length !== track.x.length) return "";
  return `${number(Math.hypot(track.x[last] - truth.x[last], track.y[last] - truth.y[last], track.z[last] - truth.z[last]), 1)} m from the truth at the end`;
}
function planFrame(points) {
  const [width, height, margin] = [chartWidth(), 0.6 * chartWidth(), 16], [x0, x1] = extent(points.map((p) => p[0])), [y0, y1] = extent(points.map((p) => p[1]));
  const scale = Math.min((width - 2 * margin) / (x1 - x0 || 1), (height - 2 * margin) / (y1 - y0 || 1));
  return { width, height, scale, u: (x) => width / 2 + (x - (x0 + x1) / 2) * scale, v: (y) => height / 2 - (y - (y0 + y1) / 2) * scale };
}
function plan(frame, title, tracks, closures, note) {
  const root = svg("svg", { viewBox: `0 0 ${frame.width} ${frame.height}`, role: "img", "aria-label": title });
  const style = { odometry: ["--odometry", "6 4", "odometry"], corrected: ["--corrected", "", "corrected"], truth: ["--ink", "1.5 4", "truth"] };
  for (const track of tracks) {
    const [colour, dash] = style[track.kind], last = track.x.length - 1;
    if (last < 0) continue;
    const path = track.x.map((x, k) => `${frame.u(x).toFixed(1)} ${frame.v(track.y[k]).toFixed(1)}`).join("L");
    root.append(svg("path", { d: `M${path}`, fill: "none", stroke: `var(${colour})`, "stroke-width": track.kind === "truth" ? 1.6 : 2.2, "stroke-dasharray": dash, "stroke-linecap": "round" }));
    if (track.kind === "truth") continue;
    root.append(svg("circle", { cx: frame.u(track.x[0]), cy: frame.v(track.y[0]), r: 5, fill: `var(${colour})` }));
    root.append(svg("rect", { x: frame.u(track.x[last]) - 4.5, y: frame.v(track.y[last]) - 4.5, width: 9, height: 9, fill: `var(${colour})` }));
  }
  for (const { from, to } of closures) {
    root.append(svg("line", { x1: frame.u(from[0]), y1: frame.v(from[1]), x2: frame.u(to[0]), y2: frame.v(to[1]), stroke: "var(--good)", "stroke-width": 2.4 }));
    for (const [x, y] of [from, to]) root.append(svg("circle", { cx: frame.u(x), cy: frame.v(y), r: 3.6, fill: "var(--good)" }));
  }
  const bar = niceStep(frame.width / frame.scale / 8), y = frame.height - 6;
  root.append(svg("line", { class: "rule", x1: 8, x2: 8 + bar * frame.scale, y1: y, y2: y }), svgText(`${bar} m`, 12 + bar * frame.scale, y + 4, "start"));
  const kinds = [...new Set(tracks.map((track) => track.kind))].map((kind) => ({ name: style[kind][2], colour: style[kind][0], dash: style[kind][1] }));
  if (closures.length) kinds.push({ name: "loop closure", colour: "--good", dash: "" });
  return element("div", { class: "chart plan" }, element("p", {}, element("b", { text: title }), note ? ` · ${note}` : ""), element("p", { class: "keys" }, ...keys(kinds)), root);
}
