// A small line of the last samples of a figure, drawn on a canvas.

/**
 * @param {HTMLCanvasElement} canvas
 * @param {(number | null)[]} samples the newest last; null where it was not known
 * @param {number} room for how many samples there is room
 * @param {string} colour
 */
export function drawSparkLine(canvas, samples, room, colour) {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const context = canvas.getContext("2d");
  if (!width || !height || !context) return;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const top = Math.max(1, ...samples.map((sample) => sample ?? 0));
  const step = width / (room - 1);
  const left = width - (samples.length - 1) * step;
  context.beginPath();
  let open = false;
  samples.forEach((sample, index) => {
    if (sample === null) { open = false; return; }
    const y = height - 1.5 - (sample / top) * (height - 4);
    context[open ? "lineTo" : "moveTo"](left + index * step, y);
    open = true;
  });
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(width, height);
  context.lineTo(left, height);
  context.globalAlpha = 0.12;
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
}
