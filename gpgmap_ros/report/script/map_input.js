// Wheel, keys, drag and fingers on the map.
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
    pointAt(world(...here));
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => {
    fingers.delete(event.pointerId);
    canvas.classList.remove("moving");
    if (end === "pointerup" && moved <= 4) pick(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerleave", () => pointAt(null));
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
