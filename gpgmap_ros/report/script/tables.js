// Tables and bars: settings, drives, times, points; and the words of the page.
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
  const names = [["drive", ""], ["begins", ""], ["clouds", "number"], ["distance", "number"], ["submaps", "number"], ["where", ""], ["why it is a separate drive", ""]];
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
  if (data.map) $("map-caption").append(element("b", { text: "The map " }), `in ${data.map.coordinates}, cells of ${Number(data.map.resolution.toPrecision(6))} m; grey is unknown ground. Light from the north-west. ${data.map.note} `,
    data.tracks.length ? "A circle marks where the drive begins, a square where it ends." : "");
  const changed = data.settings.filter((row) => row.changed);
  $("changed").append(changed.length ? settingsTable(changed, true) : element("p", { text: "All settings have their defaults." }));
  $("settings").append(settingsTable(data.settings, false));
  if (data.files.length) $("files").append(element("ul", {}, ...data.files.map(([name, what]) => element("li", {}, element("a", { href: encodeURI(name), text: name }), ` ${what}`))));
}
