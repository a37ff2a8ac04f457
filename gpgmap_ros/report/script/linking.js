// One place on the trajectory for the maps and the charts: pointing at one shows it on all.
const linked = { index: null, charts: [] };

// The tracks of one kind, drive after drive; `starts` are the indices at which drives begin.
function joined(kind) {
  const all = { x: [], y: [], z: [], time: [], starts: new Set() };
  for (const track of data.tracks.filter((t) => t.kind === kind)) {
    all.starts.add(all.x.length);
    for (const name of ["x", "y", "z", "time"]) for (const value of track[name]) all[name].push(value);
  }
  return all;
}
const mainTrack = () => (data.tracks.some((track) => track.kind === "corrected") ? "corrected" : "odometry");
const linkedTrack = joined(mainTrack());
const linkedPosition = () => [linkedTrack.x[linked.index], linkedTrack.y[linked.index]];

function link(index) {
  if (linked.index === index) return;
  linked.index = index;
  for (const show of linked.charts) show(index);
  draw();
}

// The nearest pose to a place in metres, if it is near on the screen.
function linkNearest(place) {
  let best = null, nearest = 24 / view.scale;
  if (place) for (let k = 0; k < linkedTrack.x.length; k++) {
    const distance = Math.hypot(linkedTrack.x[k] - place[0], linkedTrack.y[k] - place[1]);
    if (distance < nearest) [best, nearest] = [k, distance];
  }
  link(best);
}
