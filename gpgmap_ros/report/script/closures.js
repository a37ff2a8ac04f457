// Loop closures: accepted ones in a table, rejected comparisons folded away, pictures of the one that is chosen.
function closureTable() {
  if (!data.closures.length) { $("closure-section").remove(); return; }
  const rejected = data.closures.filter((closure) => !closure.accepted).length, accepted = data.closures.length - rejected;
  if (accepted) $("accepted-closures").append(closureRows(true));
  else $("accepted-closures").append(element("p", { class: "none", text: "No loop closure was accepted." }));
  if (rejected) {
    $("rejected-closures").append(element("summary", { text: `${rejected} rejected comparison${rejected > 1 ? "s" : ""}` }), closureRows(false));
    $("rejected-closures").open = false;
  } else $("rejected-closures").remove();
  const first = data.closures.findIndex((closure) => closure.pictures);
  const wanted = data.closures.findIndex((closure) => location.hash === `#closure-${closure.a}-${closure.b}`);
  if (wanted >= 0) {
    if (!data.closures[wanted].accepted) $("rejected-closures").open = true;
    chooseClosure(wanted, true);
  } else if (first >= 0) chooseClosure(first, false);
}

function closureRows(accepted) {
  const names = [["submaps", ""], ["probability", "number"], ["shared", "number"], ["± x, y", "number"]];
  const body = element("tbody");
  data.closures.forEach((closure, k) => {
    if (closure.accepted !== accepted) return;
    const link = element("a", { href: `#closure-${closure.a}-${closure.b}` }, element("span", { class: accepted ? "dot yes" : "dot" }), `${closure.a} – ${closure.b}`);
    const std = closure.std ? `${number(Math.max(closure.std[0], closure.std[1]), 0.5)} m` : "–";
    body.append(element("tr", { "data-index": k, title: closure.reason, onclick: (event) => { event.preventDefault(); chooseClosure(k, false); } },
      element("td", {}, link), element("td", { class: "number", text: closure.probability.toFixed(3) }),
      element("td", { class: "number", text: `${Math.round(100 * closure.overlap)} %` }), element("td", { class: "number", text: std })));
  });
  return element("table", {}, element("thead", {}, element("tr", {}, ...names.map(([text, kind]) => element("th", { class: kind, text })))), body);
}

function chooseClosure(k, scroll) {
  const closure = data.closures[k];
  view.chosen = k;
  document.querySelectorAll(".closure-list tbody tr").forEach((row) => row.classList.toggle("chosen", Number(row.dataset.index) === k));
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
  const caption = element("figcaption", {}, element("b", { text: closure.accepted ? "Accepted: " : "Rejected: " }), `${closure.reason}. `);
  caption.append(`Submap ${closure.b} lies at (${number(x, 5)}, ${number(y, 5)}, ${number(z, 5)}) m, turned by ${number(closure.yaw, 20)}°, in the frame of submap ${closure.a}.`);
  if (closure.std) caption.append(` Standard deviations: x ${number(closure.std[0], 0.5)} m, y ${number(closure.std[1], 0.5)} m, z ${number(closure.std[2], 0.5)} m, yaw ${number((closure.std[5] * 180) / Math.PI, 0.5)}°.`);
  if (closure.residual && closure.residual.median !== null) caption.append(` They share ${Math.round(closure.shared)} m²; heights there differ by ${number(closure.residual.median, 0.5)} m (median), ${number(closure.residual.rms, 0.5)} m (rms).`);
  node.append(caption);
  draw();
  if (scroll) $("closure-section").scrollIntoView({ block: "nearest" });
}
