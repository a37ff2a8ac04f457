// Line charts along the trajectory, linked to the maps.
function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
function svgText(string, x, y, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = string;
  return node;
}
// Of the drawing, in its own units: about as wide as it is shown, so that its letters are as large as the page's.
const chartWidth = () => Math.min(560, Math.max(300, document.documentElement.clientWidth - 34));
// The smallest and the largest of the finite values.
function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (Number.isFinite(value)) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
}
// Runs of indices at which all values are known.
function runs(values) {
  const found = [];
  values.forEach((value, k) => {
    if (!Number.isFinite(value)) return;
    if (k && found.length && found.at(-1).at(-1) === k - 1) found.at(-1).push(k);
    else found.push([k]);
  });
  return found;
}
function keys(series) {
  const nodes = [];
  for (const s of series) if (s.name) nodes.push(element("span", { class: "named" }, element("span", { class: s.band ? "key band" : s.dash ? "key dashed" : "key", style: `color: var(${s.colour})` }), ` ${s.name}`), " ");
  return nodes;
}

// series: name, x, y, colour, dash; with `band` (half widths) an area. indices: of the poses at the x of the first series.
function chart(title, series, yLabel, xLabel, indices) {
  const [width, height, left, right, top, bottom] = [chartWidth(), 210, 46, 8, 8, 34];
  const [xLow, xHigh] = extent(series.flatMap((s) => s.x));
  let [low, high] = extent(series.flatMap((s) => (s.band ? s.y.flatMap((y, k) => [y - s.band[k], y + s.band[k]]) : s.y)));
  if (high - low < 1e-6) high = low + 1;
  const step = niceStep((high - low) / 4);
  low = Math.floor(low / step) * step;
  high = Math.ceil(high / step) * step;
  const u = (x) => left + ((x - xLow) / (xHigh - xLow || 1)) * (width - left - right), v = (y) => height - bottom - ((y - low) / (high - low)) * (height - top - bottom);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (let y = low; y <= high + step / 2; y += step) {
    root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: v(y), y2: v(y) }));
    root.append(svgText(number(Math.abs(y) < step / 1e6 ? 0 : y, step * 3), left - 6, v(y) + 4, "end"));
  }
  const xStep = niceStep((xHigh - xLow) / 6 || 1);
  for (let x = Math.ceil(xLow / xStep) * xStep; x <= xHigh + xStep / 1e6; x += xStep) root.append(svgText(number(x, xStep * 5), u(x), height - bottom + 15, "middle"));
  root.append(svgText(xLabel, (left + width - right) / 2, height - 3, "middle"));
  for (const s of series) for (const run of runs(s.y)) {
    const at = (k, y) => `${u(s.x[k]).toFixed(1)} ${v(y).toFixed(1)}`;
    if (s.band) root.append(svg("path", { d: `M${run.map((k) => at(k, s.y[k] + s.band[k])).join("L")}L${[...run].reverse().map((k) => at(k, s.y[k] - s.band[k])).join("L")}Z`, fill: `var(${s.colour})`, opacity: 0.35 }));
    else root.append(svg("path", { d: `M${run.map((k) => at(k, s.y[k])).join("L")}`, fill: "none", stroke: `var(${s.colour})`, "stroke-width": 1.8, "stroke-dasharray": s.dash || "" }));
  }
  const heading = element("p", {}, `${title} [${yLabel}]  `, ...keys(series));
  const node = element("div", { class: "chart" }, heading, root);
  if (indices) linkChart(root, series.filter((s) => !s.band), indices, { u, v, left, right: width - right, top, bottom: height - bottom, width });
  return node;
}

// Pointing at a chart chooses the nearest pose; a pose chosen anywhere is a line here, with its values.
function linkChart(root, series, indices, frame) {
  const rule = svg("line", { class: "rule", y1: frame.top, y2: frame.bottom, visibility: "hidden" }), label = svgText("", 0, frame.top + 10, "start");
  label.setAttribute("class", "value");
  const dots = series.map((s) => svg("circle", { r: 3.2, fill: `var(${s.colour})`, visibility: "hidden" }));
  root.append(rule, ...dots, label);
  const xs = series[0].x;
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * frame.width;
    let best = 0;
    xs.forEach((x, k) => { if (Math.abs(frame.u(x) - at) < Math.abs(frame.u(xs[best]) - at)) best = k; });
    link(indices[best]);
  });
  root.addEventListener("pointerleave", () => link(null));
  linked.charts.push((index) => {
    const k = index === null ? -1 : indices.indexOf(index), visibility = k < 0 ? "hidden" : "visible";
    for (const part of [rule, ...dots]) part.setAttribute("visibility", visibility);
    label.textContent = "";
    if (k < 0) return;
    const x = frame.u(xs[k]), late = x > (frame.left + frame.right) / 2;
    rule.setAttribute("x1", x);
    rule.setAttribute("x2", x);
    series.forEach((s, i) => {
      const known = Number.isFinite(s.y[k]);
      dots[i].setAttribute("visibility", known ? "visible" : "hidden");
      if (known) { dots[i].setAttribute("cx", x); dots[i].setAttribute("cy", frame.v(s.y[k])); }
    });
    label.setAttribute("x", late ? x - 6 : x + 6);
    label.setAttribute("text-anchor", late ? "end" : "start");
    label.textContent = [`${number(xs[k], 20)} m`, ...series.map((s) => `${s.name ? `${s.name} ` : ""}${number(s.y[k], 1)}`)].join(" · ");
  });
}
