// Added to a report by test_report.py: uses the page as a reader would, and leaves what was seen in an attribute.
// AT_X and AT_Y are replaced by a place on the map.
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
addEventListener("load", async () => {
  for (let k = 0; k < 200 && !document.documentElement.hasAttribute("data-ready"); k++) await wait(20);
  const canvas = document.getElementById("map"), box = canvas.getBoundingClientRect(), seen = {};
  const pixels = () => { const c = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data; let s = 0; for (let k = 0; k < c.length; k += 97) s = (s * 31 + c[k]) % 1000003; return s; };
  const point = (u, v) => canvas.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, pointerId: 1, clientX: box.left + u, clientY: box.top + v }));
  const values = () => Object.fromEntries([...document.querySelectorAll("#values span")].map((n) => [n.querySelector("i").textContent, n.querySelector("b").textContent]));
  await wait(100);
  seen.tabs = [...document.querySelectorAll("#layers button")].map((b) => b.textContent);
  const [u, v] = screen(AT_X, AT_Y);
  point(u, v); await wait(60);
  seen.values = values();
  seen.pictures = [];
  for (const button of document.querySelectorAll("#layers button")) { button.click(); paint(); seen.pictures.push(pixels()); }
  seen.legend = document.getElementById("legend").textContent;
  document.querySelector("#layers button").click(); await wait(60);
  const before = view.scale;
  canvas.dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, deltaY: -400, clientX: box.left + u, clientY: box.top + v })); await wait(60);
  seen.zoom = view.scale / before;
  seen.still = screen(AT_X, AT_Y).map((p, k) => Math.abs(p - [u, v][k]));
  document.getElementById("zoom-all").click(); await wait(60);
  seen.back = Math.abs(view.scale / before - 1);
  seen.rows = document.querySelectorAll("#settings tr").length;
  seen.warnings = [...document.querySelectorAll(".warning")].map((n) => n.textContent);
  seen.title = document.getElementById("title").textContent;
  document.documentElement.setAttribute("data-seen", JSON.stringify(seen));
});
