// The bottom sheet of a phone: three heights, by dragging its handle or by the arrow keys.

const HEIGHTS = [0.17, 0.46, 0.9];

export function makeSheet(panels) {
  let level = 1;
  const set = (next) => {
    level = Math.max(0, Math.min(HEIGHTS.length - 1, next));
    document.documentElement.style.setProperty("--sheet-height", `${HEIGHTS[level] * 100}dvh`);
    for (const { handle } of panels) {
      handle.setAttribute("aria-valuenow", String(level));
      handle.setAttribute("aria-valuetext", ["low", "half", "full"][level]);
    }
  };
  set(1);
  for (const { panel, handle } of panels) listen(panel, handle, set, () => level);
  return { set, get level() { return level; } };
}

function listen(panel, handle, set, current) {
  let start = null;
  handle.addEventListener("pointerdown", (event) => {
    start = { y: event.clientY, height: panel.offsetHeight };
    handle.setPointerCapture(event.pointerId);
    panel.dataset.dragging = "";
  });
  handle.addEventListener("pointermove", (event) => {
    if (!start) return;
    document.documentElement.style.setProperty("--sheet-height", `${start.height + start.y - event.clientY}px`);
  });
  const end = (event) => {
    if (!start) return;
    const share = (start.height + start.y - event.clientY) / innerHeight;
    const moved = Math.abs(start.y - event.clientY);
    start = null;
    delete panel.dataset.dragging;
    if (moved < 5) return set((current() + 1) % HEIGHTS.length);
    const distances = HEIGHTS.map((height) => Math.abs(height - share));
    return set(distances.indexOf(Math.min(...distances)));
  };
  handle.addEventListener("pointerup", end);
  handle.addEventListener("pointercancel", end);
  handle.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    set(current() + step);
  });
}
