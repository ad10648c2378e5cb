// The timeline: lanes of the units and memory graphs under them, on one canvas and one time axis.

const LANES = content.timeline?.lanes || [["HMX", "--hmx"], ["HVX", "--hvx"], ["DMA", "--dma"], ["critical path", ""], ["host", "--rpc"]];
const UNITS = LANES.length - 2; // the last two are a path through the others, and the host
const AXIS = 26;
const LANE = 34;
const GRAPH = 84;
const GAP = 10;
const HEIGHT = AXIS + LANES.length * LANE + 2 * (GRAPH + GAP) + 6;

/** Draws the timeline; `pick(row, reveal)` is called for a task that is chosen. Returns {element, select(row, reveal), redraw(), paint()}. */
function drawTimeline(data, ops, pick) {
  const lanes = lanesOf(data, ops);
  const whole = data.whole || 1;
  const steps = { vtcm: stepsOf(data.vtcm, data.before), dram: stepsOf(data.dram, data.before) };
  const fits = { call: [0, whole], accelerator: [data.before, data.before + (data.accelerator || whole)] };
  // where the host takes most of the call, its lane would leave a sliver for the rest
  const start = data.accelerator > 0.4 * whole ? "call" : "accelerator";
  let [from, to] = padded(fits[start]);
  let selected = -1;
  let extent = null;
  let cursor = null;
  let band = null;

  const canvas = make("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Timeline. Arrow keys left and right move, plus and minus zoom, up and down choose a task, 0 shows everything.");
  const range = make("output", "count");
  const buttons = make(
    "div",
    "controls",
    button("−", "Zoom out", () => zoom(1.6)),
    button("+", "Zoom in", () => zoom(1 / 1.6)),
    button("←", "Earlier", () => pan(-0.25)),
    button("→", "Later", () => pan(0.25)),
    button("Whole call", "Show the call with the host's part", () => show(...padded(fits.call))),
    button("Accelerator", "Show the accelerator's part", () => show(...padded(fits.accelerator))),
    button("Reset", "As it was first", () => {
      show(...padded(fits[start]));
      pick(-1);
    }),
    range,
  );
  const thumb = make("span");
  const strip = make("div", "strip", thumb);
  const details = make("div", "details");
  details.setAttribute("aria-live", "polite");
  const element = make("div", "timeline", buttons, make("div", "stage", canvas), strip, details);
  const left = () => (canvas.clientWidth < 620 ? 46 : 92);

  function padded([a, b]) {
    const room = 0.01 * (b - a);
    return [a - room, b + room];
  }

  function show(a, b) {
    const least = whole * 1e-6;
    const span = Math.min(Math.max(b - a, least), whole * 1.02);
    a = Math.min(Math.max(a, -0.01 * whole), 1.01 * whole - span);
    [from, to] = [a, a + span];
    range.textContent = `${timeText(span)} in view`;
    thumb.style.left = `${(100 * Math.max(0, from)) / whole}%`;
    thumb.style.width = `${Math.max(0.3, (100 * (Math.min(to, whole) - Math.max(0, from))) / whole)}%`;
    redraw();
  }

  function zoom(by, at = (from + to) / 2) {
    show(at - (at - from) * by, at + (to - at) * by);
  }

  function pan(part) {
    const by = part * (to - from);
    show(from + by, to + by);
  }

  const timeAt = (x) => from + ((x - left()) / (canvas.clientWidth - left())) * (to - from);

  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  }

  function paint() {
    const width = canvas.clientWidth;
    const ratio = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(HEIGHT * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    paintTimeline(c, { data, lanes, steps, width, left: left(), from, to, selected, extent, cursor, band });
  }

  /** What is drawn at a place: {lane, index}, or null. */
  function hit(x, y) {
    const lane = lanes[Math.floor((y - AXIS) / LANE)];
    if (!lane || y < AXIS || x < left()) return null;
    const at = timeAt(x);
    const slack = (2 * (to - from)) / canvas.clientWidth;
    let best = null;
    for (let i = Math.max(0, before(lane.start, at + slack) - 3); i < lane.start.length && lane.start[i] <= at + slack; i++) {
      const off = Math.max(lane.start[i] - at, at - lane.start[i] - lane.us[i], 0);
      if (off <= slack && (!best || off <= best.off)) best = { lane, index: i, off };
    }
    return best;
  }

  function tell(x, y, pageX, pageY) {
    const found = hit(x, y);
    canvas.style.cursor = found && found.lane.row[found.index] >= 0 ? "pointer" : y < AXIS ? "col-resize" : "grab";
    const at = timeAt(x);
    if (!found) {
      const graph = AXIS + LANES.length * LANE;
      if (y > graph && x > left()) {
        tooltip.show([timeText(at - data.before), ["VTCM", sizeText(Math.round(valueAt(steps.vtcm, at)))], ["DRAM", `${short(valueAt(steps.dram, at))} GB/s`]], pageX, pageY);
      } else tooltip.hide();
      return;
    }
    const { lane, index: i } = found;
    const row = lane.row[i];
    const lines = [row >= 0 ? data.names[row] : lane.kind ? data.kinds[lane.kind[i]] : lane.names[i]];
    if (row >= 0) lines.push(["op", ops.rows[row][1] + (data.fused[row].length ? ` and ${data.fused[row].length - 1} fused` : "")]);
    if (lane.kind) lines.push(["HTP op", data.kinds[lane.kind[i]]]);
    lines.push(["unit", lane.unit ? `${lane.name}, ${data.units[lane.unit[i]]}` : lane.name]);
    lines.push(["start", timeText(lane.start[i] - data.before)], ["duration", timeText(lane.us[i])]);
    if (row >= 0) lines.push(["cycles", fixed(lane.us[i] * data.mhz, 0)]);
    if (lane.bytes && lane.bytes[i]) lines.push(["bytes", `${sizeText(lane.bytes[i])}, ${short(lane.bytes[i] / lane.us[i] / 1e3)} GB/s`]);
    tooltip.show(lines, pageX, pageY);
  }

  function select(row, reveal) {
    selected = row;
    extent = row < 0 ? null : extentOf(lanes, row);
    details.replaceChildren(...(row < 0 ? [] : describe(row)));
    if (row >= 0 && reveal) {
      const [a, us] = [data.before + ops.rows[row][3], Math.max(ops.rows[row][4], whole * 1e-6)];
      if (a + us < from || a > to || us < 0.004 * (to - from)) show(a + us / 2 - us * 12, a + us / 2 + us * 12);
    }
    redraw();
  }

  function describe(row) {
    const texts = ops.columns.slice(1).map((column, k) => [column.name, cellText(column, ops.rows[row][k + 1])]);
    if (data.fused[row].length) texts.push(["runs", data.fused[row].join(", ")]);
    return [make("strong", "", data.names[row]), make("dl", "", ...texts.map(([name, text]) => make("div", "", make("dt", "", name), make("dd", "", text))))];
  }

  // Pointers: one drags, two pinch; a press that does not move picks.
  const pointers = new Map();
  let press = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, x);
    press = { x, y, from, to, moved: false, zooming: y < AXIS || event.shiftKey, gap: gap() };
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!pointers.has(event.pointerId)) {
      cursor = x > left() ? x : null;
      tell(x, y, event.clientX, event.clientY);
      redraw();
      return;
    }
    pointers.set(event.pointerId, x);
    const per = (press.to - press.from) / (canvas.clientWidth - left());
    if (pointers.size === 2) {
      if (!press.gap) press = { ...press, from, to, gap: gap(), moved: true };
      const middle = [...pointers.values()].reduce((a, b) => a + b) / 2;
      const at = press.from + (middle - left()) * per;
      const by = press.gap / Math.max(8, gap());
      show(at - (at - press.from) * by, at + (press.to - at) * by);
      return;
    }
    if (Math.abs(x - press.x) > 4) press.moved = true;
    if (!press.moved) return;
    tooltip.hide();
    if (press.zooming) {
      band = [Math.min(x, press.x), Math.max(x, press.x)];
      redraw();
    } else show(press.from - (x - press.x) * per, press.to - (x - press.x) * per);
  });
  const gap = () => (pointers.size === 2 ? Math.abs([...pointers.values()].reduce((a, b) => a - b)) : 0);
  const release = (event) => {
    if (!pointers.delete(event.pointerId) || !press) return;
    const [x, y] = place(event);
    if (band) {
      const [a, b] = [timeAt(band[0]), timeAt(band[1])];
      band = null;
      show(a, b);
    } else if (!press.moved && event.type === "pointerup") {
      const found = hit(x, y);
      const row = found ? found.lane.row[found.index] : -1;
      if (row >= 0 || y > AXIS) pick(row, false);
    }
    if (!pointers.size) press = null;
    redraw();
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    cursor = null;
    tooltip.hide();
    redraw();
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = hit(...place(event));
    if (found) show(found.lane.start[found.index] - found.lane.us[found.index], found.lane.start[found.index] + 2 * found.lane.us[found.index]);
  });
  // The wheel zooms once the timeline has been clicked (or with Ctrl, as a pinch comes): until then the page scrolls.
  canvas.addEventListener(
    "wheel",
    (event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!sideways && !event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const unit = event.deltaMode ? 30 : 1;
      if (sideways) pan(((event.deltaX || event.deltaY) * unit) / canvas.clientWidth);
      else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.002)))), timeAt(place(event)[0]));
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const rows = data.names.length;
    const actions = {
      ArrowLeft: () => pan(-0.1),
      ArrowRight: () => pan(0.1),
      "+": () => zoom(1 / 1.4),
      "=": () => zoom(1 / 1.4),
      "-": () => zoom(1.4),
      0: () => show(...padded(fits[start])),
      Home: () => show(...padded(fits[start])),
      ArrowDown: () => rows && pick(Math.min(rows - 1, selected + 1), true),
      ArrowUp: () => rows && pick(Math.max(0, selected - 1), true),
      Escape: () => pick(-1),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  });
  const slide = (event) => {
    if (event.buttons !== 1) return;
    const box = strip.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * whole;
    show(at - (to - from) / 2, at + (to - from) / 2);
  };
  strip.addEventListener("pointerdown", (event) => {
    strip.setPointerCapture(event.pointerId);
    slide(event);
  });
  strip.addEventListener("pointermove", slide);
  canvas.style.height = `${HEIGHT}px`;
  new ResizeObserver(redraw).observe(canvas);
  show(from, to);
  return { element, select, redraw, paint };
}

/** Events by lane, in the order of their start. */
function lanesOf(data, ops) {
  const { events, critical } = data;
  const found = LANES.map(([name, colour]) => ({ name, colour, start: [], us: [], row: [], bytes: [], names: [] }));
  for (let i = 0; i < events.start.length; i++) {
    const lane = found[events.unit[i]];
    lane.start.push(data.before + events.start[i]);
    lane.us.push(events.us[i]);
    lane.row.push(events.row[i]);
    lane.bytes.push(events.bytes[i]);
    if (events.kind) (lane.kind ||= []).push(events.kind[i]);
  }
  Object.assign(found[UNITS], { kind: critical.kind || null, start: critical.start.map((at) => data.before + at), us: critical.us, row: critical.row, unit: critical.unit, bytes: critical.bytes });
  const host = data.host.filter((piece) => piece[2] > 0);
  Object.assign(found[UNITS + 1], { start: host.map((h) => h[1]), us: host.map((h) => h[2]), row: host.map(() => -1), bytes: null, names: host.map((h) => h[0]) });
  for (const lane of found) {
    lane.texts = (i) => {
      const row = lane.row[i];
      if (row < 0 && lane.kind) return [data.kinds[lane.kind[i]]];
      if (row < 0) return [lane.names[i], lane.names[i].split(":")[0]];
      if (lane.kind && lane.name !== LANES[0][0]) return [`${data.kinds[lane.kind[i]]} ${tail(data.names[row])}`, data.kinds[lane.kind[i]]];
      const unit = lane.unit ? `${data.units[lane.unit[i]]} ` : "";
      return [unit + tail(data.names[row]), unit + ops.rows[row][1]];
    };
  }
  return found;
}

/** From the first to the last that the units do for a task. */
function extentOf(lanes, row) {
  let [a, b] = [Infinity, -Infinity];
  for (const lane of lanes.slice(0, UNITS)) {
    lane.row.forEach((r, i) => {
      if (r === row) [a, b] = [Math.min(a, lane.start[i]), Math.max(b, lane.start[i] + lane.us[i])];
    });
  }
  return a < b ? [a, b] : null;
}

/** A step function with what lies under it up to each step. */
function stepsOf([times, values], shift) {
  const at = times.map((time) => time + shift);
  const area = [0];
  for (let i = 1; i < at.length; i++) area.push(area[i - 1] + values[i - 1] * (at[i] - at[i - 1]));
  return { at, values, area, most: values.reduce((a, b) => Math.max(a, b), 0) };
}

/** How many of the sorted numbers are at most x, less one. */
function before(sorted, x) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function valueAt(steps, x) {
  const i = before(steps.at, x);
  return i < 0 ? 0 : steps.values[i];
}

function areaTo(steps, x) {
  const i = before(steps.at, x);
  return i < 0 ? 0 : steps.area[i] + steps.values[i] * (x - steps.at[i]);
}
