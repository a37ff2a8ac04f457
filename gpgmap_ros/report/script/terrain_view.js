// The terrain in 3D, by WebGL. Without it the panel says so and the page is otherwise the same.
const terrain = { gl: null, mesh: null, yaw: -0.5, tilt: 0.75, distance: 1, exaggeration: 1, pending: false };

const FACTORS = [1, 1.5, 2, 3, 5, 10];

const VERTEX_SHADER = `#version 300 es
in vec3 position; in vec3 normal; in vec4 colour;
uniform mat4 camera; uniform float exaggeration; uniform vec4 flatColour;
out vec4 shade;
void main() {
  gl_Position = camera * vec4(position.xy, position.z * exaggeration, 1.0);
  vec3 n = normalize(vec3(normal.xy * exaggeration, max(normal.z, 0.01)));
  float light = 0.42 + 0.72 * max(dot(n, normalize(vec3(-0.55, 0.55, 0.62))), 0.0);
  shade = flatColour.a > 0.0 ? flatColour : vec4(colour.rgb * light, 1.0);
}`;
const FRAGMENT_SHADER = `#version 300 es
precision mediump float;
in vec4 shade; out vec4 result;
void main() { result = vec4(min(shade.rgb, 1.0), 1.0); }`;

function startTerrain() {
  const canvas = $("terrain"), panel = $("terrain-panel");
  if (!shown.values.length || layerNamed("elevation") < 0) { panel.remove(); return; }
  const gl = canvas.getContext("webgl2", { antialias: true, preserveDrawingBuffer: true });
  if (!gl) { tellTerrain("This browser has no WebGL: the terrain is not shown in 3D. Everything else on this page works without it."); return; }
  try {
    buildTerrain(gl);
  } catch (error) {
    terrain.gl = null;
    tellTerrain(`The terrain can't be shown in 3D here: ${error.message}`);
    return;
  }
  canvas.addEventListener("webglcontextlost", (event) => { event.preventDefault(); terrain.gl = null; tellTerrain("The graphics driver gave up the 3D view: reload the page to see it again."); });
  listenToTerrain(canvas);
  new ResizeObserver(() => { size(canvas); drawTerrain(); }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTerrain);
  size(canvas);
  paintTerrain(view.layer);
}
function tellTerrain(text) {
  $("terrain-panel").classList.add("without");
  $("terrain-message").textContent = text;
}

function buildTerrain(gl) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX_SHADER], [gl.FRAGMENT_SHADER, FRAGMENT_SHADER]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  ["position", "normal", "colour"].forEach((name, k) => gl.bindAttribLocation(program, k, name));
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  const elevation = layerNamed("elevation"), mesh = terrainMesh(data.map, shown.values[elevation], data.map.layers[elevation].limits, shown.certain);
  const buffer = (content, kind = gl.ARRAY_BUFFER) => { const made = gl.createBuffer(); gl.bindBuffer(kind, made); gl.bufferData(kind, content, gl.STATIC_DRAW); return made; };
  const uniform = (name) => gl.getUniformLocation(program, name);
  const width = 0.005 * mesh.across;
  Object.assign(terrain, {
    gl, program, mesh, uniforms: { camera: uniform("camera"), exaggeration: uniform("exaggeration"), flatColour: uniform("flatColour") },
    positions: buffer(mesh.positions), normals: buffer(mesh.normals), colours: gl.createBuffer(), triangles: buffer(mesh.triangles, gl.ELEMENT_ARRAY_BUFFER),
    ribbons: data.tracks.filter((track) => track.kind !== "truth" && track.x.length > 1).map((track) => {
      const points = ribbon(data.map, mesh, track, width);
      return { kind: track.kind, colour: track.colour, buffer: buffer(points), count: points.length / 3 };
    }),
  });
  // as much as it takes to see the relief: a plain of 100 m with 1 m of relief would look like a sheet
  const wanted = (0.05 * mesh.across) / Math.max(mesh.relief, 1e-6);
  terrain.exaggeration = FACTORS.find((factor) => factor >= wanted) ?? FACTORS.at(-1);
  const choice = $("exaggeration");
  for (const factor of FACTORS) choice.append(element("option", { value: factor, text: `heights × ${factor}` }));
  choice.value = terrain.exaggeration;
  choice.onchange = () => { terrain.exaggeration = Number(choice.value); drawTerrain(); };
  $("enlarge").onclick = () => {
    const large = $("map-grid").classList.toggle("large-terrain");
    $("enlarge").textContent = large ? "smaller" : "larger";
  };
}

// Colour the surface by a layer of the map.
function paintTerrain(k) {
  const { gl, mesh } = terrain;
  if (!gl) return;
  gl.bindBuffer(gl.ARRAY_BUFFER, terrain.colours);
  gl.bufferData(gl.ARRAY_BUFFER, terrainColours(mesh, data.map.layers[k], shown.values[k]), gl.STATIC_DRAW);
  drawTerrain();
}

function drawTerrain() {
  if (terrain.pending || !terrain.gl) return;
  terrain.pending = true;
  requestAnimationFrame(() => { terrain.pending = false; if (terrain.gl) renderTerrain(terrain.gl); });
}

const rgb = (text) => {
  const context = element("canvas").getContext("2d");
  context.fillStyle = text;
  return [1, 3, 5].map((k) => parseInt(context.fillStyle.substr(k, 2), 16) / 255);
};

function renderTerrain(gl) {
  const canvas = $("terrain");
  gl.viewport(0, 0, canvas.width, canvas.height);
  gl.clearColor(...rgb(css("--unknown")), 1);
  gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  gl.enable(gl.DEPTH_TEST);
  gl.useProgram(terrain.program);
  gl.uniformMatrix4fv(terrain.uniforms.camera, false, cameraMatrix(canvas.width / Math.max(canvas.height, 1)));
  gl.uniform1f(terrain.uniforms.exaggeration, terrain.exaggeration);
  gl.uniform4f(terrain.uniforms.flatColour, 0, 0, 0, 0);
  attribute(gl, 0, terrain.positions, 3, gl.FLOAT, false, 0);
  attribute(gl, 1, terrain.normals, 3, gl.BYTE, true, 4);
  attribute(gl, 2, terrain.colours, 4, gl.UNSIGNED_BYTE, true, 0);
  gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, terrain.triangles);
  gl.drawElements(gl.TRIANGLES, terrain.mesh.triangles.length, gl.UNSIGNED_INT, 0);
  gl.disableVertexAttribArray(1);
  gl.disableVertexAttribArray(2);
  for (const { kind, colour, buffer, count } of terrain.ribbons) {
    if (!view[kind]) continue;
    gl.uniform4f(terrain.uniforms.flatColour, ...rgb(colour || css(TRACK[kind][0])), 1);
    attribute(gl, 0, buffer, 3, gl.FLOAT, false, 0);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, count);
  }
}
function attribute(gl, location, buffer, count, kind, normalized, step) {
  gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, count, kind, normalized, step, 0);
}

// Perspective from a point around the middle of the map; z is up.
function cameraMatrix(aspect) {
  const { yaw, tilt, mesh } = terrain, reach = 0.8 * mesh.across * terrain.distance * Math.max(1, 1.1 / aspect), focal = 1.9;
  const forward = [Math.sin(yaw) * Math.cos(tilt), Math.cos(yaw) * Math.cos(tilt), -Math.sin(tilt)];
  const sideways = [Math.cos(yaw), -Math.sin(yaw), 0];
  const up = [sideways[1] * forward[2] - sideways[2] * forward[1], sideways[2] * forward[0] - sideways[0] * forward[2], sideways[0] * forward[1] - sideways[1] * forward[0]];
  const near = 0.05 * reach, far = 4 * reach, a = (far + near) / (far - near), b = (-2 * far * near) / (far - near);
  // rows: clip x, y, z, w as linear functions of (x, y, z, 1); depth along the view is forward . p + reach
  const rows = [sideways.map((c) => (focal / aspect) * c).concat(0), up.map((c) => focal * c).concat(0), forward.map((c) => a * c).concat(a * reach + b), forward.concat(reach)];
  return new Float32Array([0, 1, 2, 3].flatMap((column) => rows.map((row) => row[column])));
}

function turnTerrain(yaw, tilt) {
  terrain.yaw += yaw;
  terrain.tilt = Math.min(Math.max(terrain.tilt + tilt, 0.08), 1.55);
  drawTerrain();
}
function listenToTerrain(canvas) {
  let before = null;
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); before = [event.clientX, event.clientY]; });
  canvas.addEventListener("pointermove", (event) => {
    if (!before) return;
    // the ground follows the hand
    turnTerrain(0.008 * (event.clientX - before[0]), 0.006 * (event.clientY - before[1]));
    before = [event.clientX, event.clientY];
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { before = null; });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    terrain.distance = Math.min(Math.max(terrain.distance * Math.exp(event.deltaY * 0.0012), 0.25), 3);
    drawTerrain();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
    if (!turns[event.key]) return;
    event.preventDefault();
    turnTerrain(...turns[event.key]);
  });
}
