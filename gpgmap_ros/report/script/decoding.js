// Layers from text: the inverse of gpgmap_ros/report/encoding.py.
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
