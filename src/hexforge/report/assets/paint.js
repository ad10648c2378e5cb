// How the timeline is painted: ruler, lanes, graphs.

function paintTimeline(c, view) {
  const { data, lanes, steps, width, left, from, to } = view;
  const px = (at) => left + ((at - from) / (to - from)) * (width - left);
  const ink = { text: style("--ink"), muted: style("--muted"), line: style("--line"), lane: style("--lane"), back: style("--surface"), mark: style("--mark") };
  const colours = LANES.slice(0, UNITS).map((lane) => style(lane[1]));
  const bottom = HEIGHT - 6;
  c.clearRect(0, 0, width, HEIGHT);
  c.textBaseline = "middle";

  // ruler: from the accelerator's start, as in the table
  c.font = "11px system-ui, sans-serif";
  c.textAlign = "center";
  const unit = to - from > 2e3 ? [1e3, "ms"] : to - from > 0.5 ? [1, "µs"] : [1e-3, "ns"];
  for (const tick of ticks((from - data.before) / unit[0], (to - data.before) / unit[0], width / 90)) {
    const x = px(tick * unit[0] + data.before);
    if (x < left) continue;
    c.fillStyle = ink.line;
    c.fillRect(Math.round(x), AXIS - 5, 1, bottom - AXIS + 5);
    c.fillStyle = ink.muted;
    if (x > left + 16 && x < width - 24) c.fillText(`${tickText(tick)} ${unit[1]}`, x, AXIS / 2 - 1);
  }

  const clip = (paint) => {
    c.save();
    c.beginPath();
    c.rect(left, 0, width - left, HEIGHT);
    c.clip();
    paint();
    c.restore();
  };
  lanes.forEach((lane, n) => {
    const y = AXIS + n * LANE + 4;
    const height = LANE - 8;
    c.fillStyle = ink.lane;
    c.fillRect(left, y, width - left, height);
    c.fillStyle = ink.text;
    c.textAlign = "left";
    c.font = "600 12px system-ui, sans-serif";
    c.fillText(left < 60 && n >= 3 ? `${lane.name.slice(0, 4)}.` : lane.name, 0, y + height / 2);
    clip(() => paintLane(c, lane, { y, height, px, from, to, width, data, colours, selected: view.selected, ink }));
  });

  let y = AXIS + LANES.length * LANE + GAP;
  const graphs = [
    // a small peak would lie flat under the size: it has its own scale, and the size is only named
    ["VTCM", steps.vtcm, style("--vtcm"), steps.vtcm.most < 0.1 * data.vtcm_limit ? 1.2 * steps.vtcm.most || 1 : data.vtcm_limit, sizeText, data.vtcm_limit, `size ${sizeText(data.vtcm_limit)}`],
    ["DRAM", steps.dram, style("--dma"), Math.max(steps.dram.most, 1e-3), (v) => `${short(v)} GB/s`, steps.dram.most, `peak ${short(steps.dram.most)} GB/s`],
  ];
  graphs.forEach(([name, series, colour, most, text, limit, limitText], n) => {
    const top = y + 16;
    const height = GRAPH - 18;
    const py = (value) => top + height - (height * value) / most;
    c.fillStyle = ink.lane;
    c.fillRect(left, top, width - left, height);
    clip(() => paintSteps(c, series, colour, { px, py, from, to, left, width, floor: top + height, mean: n === 1 }));
    if (limit <= most) {
      c.strokeStyle = ink.muted;
      c.setLineDash([5, 4]);
      c.beginPath();
      c.moveTo(left, py(limit) + 0.5);
      c.lineTo(width, py(limit) + 0.5);
      c.stroke();
      c.setLineDash([]);
    }
    c.textAlign = "left";
    c.font = "600 12px system-ui, sans-serif";
    c.fillStyle = ink.text;
    c.fillText(name, 0, top + height / 2 - 7);
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = ink.muted;
    c.fillText(n ? (left < 60 ? "GB/s" : "GB/s, mean") : "in use", 0, top + height / 2 + 8);
    c.textAlign = "right";
    c.fillText(n ? limitText : `peak ${text(series.most)} · ${limitText}`, width - 4, y + 6);
    y += GRAPH + GAP;
  });

  if (view.extent) {
    const [a, b] = view.extent.map(px);
    clip(() => {
      c.fillStyle = ink.mark;
      c.globalAlpha = 0.08;
      c.fillRect(a, AXIS, Math.max(1, b - a), bottom - AXIS);
      c.globalAlpha = 1;
    });
  }
  if (view.band) {
    c.fillStyle = ink.mark;
    c.globalAlpha = 0.15;
    c.fillRect(view.band[0], 0, view.band[1] - view.band[0], bottom);
    c.globalAlpha = 1;
  } else if (view.cursor !== null && view.cursor > left) {
    c.fillStyle = ink.muted;
    c.globalAlpha = 0.5;
    c.fillRect(view.cursor, AXIS, 1, bottom - AXIS);
    c.globalAlpha = 1;
  }
}

/** Events of a lane: a box and a name each where there is room, else how busy each pixel is. */
function paintLane(c, lane, { y, height, px, from, to, width, data, colours, selected, ink }) {
  const colour = lane.colour ? style(lane.colour) : "";
  let end = -1;
  const chosen = [];
  c.font = "11px system-ui, sans-serif";
  c.textAlign = "left";
  for (let i = Math.max(0, before(lane.start, from) - 1); i < lane.start.length && lane.start[i] <= to; i++) {
    const a = px(lane.start[i]);
    const b = px(lane.start[i] + lane.us[i]);
    if (lane.row[i] >= 0 && lane.row[i] === selected) chosen.push([a, b]);
    if (b < end || b < 0) continue; // already painted over at this zoom
    const wide = b - a > 3;
    const x = Math.max(a, end);
    const w = wide ? b - x - 0.75 : Math.max(0.75, b - x);
    c.fillStyle = lane.unit ? colours[lane.unit[i]] : colour;
    c.globalAlpha = lane.row[i] < 0 ? 0.75 : 1;
    c.fillRect(x, y, w, height);
    c.globalAlpha = 1;
    end = x + w;
    const seen = Math.max(x, px(from));
    const room = Math.min(b, width) - seen - 10;
    if (room > 26) {
      c.fillStyle = onColour(lane.unit ? colours[lane.unit[i]] : colour);
      c.fillText(fitting(lane.texts(i), Math.floor(room / 6)), seen + 5, y + height / 2);
    }
  }
  c.strokeStyle = ink.text;
  c.lineWidth = 2;
  for (const [a, b] of chosen) c.strokeRect(a - 1, y - 2, Math.max(3, b - a + 1), height + 4);
  c.lineWidth = 1;
}

/** Black or white, whichever reads better on a colour written as #rrggbb. */
function onColour(colour) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16) / 255).map((v) => (v <= 0.04 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#10141a" : "#ffffff";
}

/** A step function: the mean of each pixel, or its highest. */
function paintSteps(c, series, colour, { px, py, from, to, left, width, floor, mean }) {
  if (!series.at.length) return;
  const per = (to - from) / (width - left);
  c.beginPath();
  c.moveTo(left, floor);
  let i = Math.max(0, before(series.at, from));
  for (let x = left; x < width; x++) {
    const [a, b] = [from + (x - left) * per, from + (x + 1 - left) * per];
    let value = 0;
    if (mean) value = (areaTo(series, b) - areaTo(series, a)) / per;
    else {
      value = valueAt(series, a);
      while (i < series.at.length && series.at[i] < b) {
        if (series.at[i] >= a) value = Math.max(value, series.values[i]);
        i++;
      }
    }
    c.lineTo(x, py(value));
    c.lineTo(x + 1, py(value));
  }
  c.lineTo(width, floor);
  c.closePath();
  c.fillStyle = colour;
  c.globalAlpha = 0.28;
  c.fill();
  c.globalAlpha = 1;
  c.strokeStyle = colour;
  c.lineWidth = 1.25;
  c.stroke();
  c.lineWidth = 1;
}
