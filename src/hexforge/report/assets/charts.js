// Bars and plots of the sections.

function drawBars(spec) {
  const { labels, values, low, high, unit, mark } = spec;
  const most = Math.max(1e-12, ...values.map((v) => v || 0), ...high.map((v) => v || 0));
  const rows = labels.map((label, i) => {
    const fill = make("span", "fill");
    fill.style.width = `${(100 * (values[i] || 0)) / most}%`;
    const track = make("span", "track", fill);
    const ranged = low[i] !== undefined && low[i] !== null;
    if (ranged) {
      const range = make("span", "range");
      range.style.left = `${(100 * low[i]) / most}%`;
      range.style.width = `${(100 * (high[i] - low[i])) / most}%`;
      track.append(range);
    }
    const text = values[i] === null ? "–" : `${short(values[i])} ${unit}`;
    const row = make("li", i === mark ? "mark" : "", make("span", "label", label), track, make("span", "value", text));
    row.title = ranged ? `${label}: ${text}, ${short(low[i])} to ${short(high[i])}` : `${label}: ${text}`;
    return row;
  });
  return make("div", labels.length > 10 || spec.wide ? "bars wide" : "bars", spec.title ? make("h3", "", spec.title) : null, make("ul", "", ...rows));
}

const MARKS = ["circle", "square", "diamond", "triangle"];

function markPath(kind, x, y, r) {
  if (kind === "square") return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  if (kind === "diamond") return `M${x} ${y - 1.3 * r}l${1.3 * r} ${1.3 * r} ${-1.3 * r} ${1.3 * r} ${-1.3 * r} ${-1.3 * r}z`;
  if (kind === "triangle") return `M${x} ${y - 1.2 * r}l${1.2 * r} ${2.2 * r}h${-2.4 * r}z`;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
}

function drawPlot(spec) {
  const [width, height, left, right, top, bottom] = [720, 320, 64, 16, 12, 44];
  const points = spec.series.flatMap((one) => one.points);
  const range = (k) => {
    const all = points.map((p) => p[k]);
    const [a, b] = all.length ? [all.reduce((m, v) => Math.min(m, v)), all.reduce((m, v) => Math.max(m, v))] : [0, 1];
    const room = (b - a || Math.abs(a) || 1) * 0.06;
    return [a >= 0 && a - room < 0 ? 0 : a - room, b + room];
  };
  const [[x0, x1], [y0, y1]] = [range(0), range(1)];
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${spec.title || spec.y}: ${spec.y} over ${spec.x}` });
  for (const x of ticks(x0, x1, 8)) {
    picture.append(svg("line", { class: "grid", x1: px(x), x2: px(x), y1: top, y2: height - bottom }));
    picture.append(svg("text", { x: px(x), y: height - bottom + 18, "text-anchor": "middle" }, tickText(x)));
  }
  for (const y of ticks(y0, y1, 6)) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: py(y), y2: py(y) }));
    picture.append(svg("text", { x: left - 8, y: py(y) + 4, "text-anchor": "end" }, tickText(y)));
  }
  picture.append(svg("text", { class: "axis", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, spec.x));
  picture.append(svg("text", { class: "axis", x: -(top + height - bottom) / 2, y: 14, transform: "rotate(-90)", "text-anchor": "middle" }, spec.y));
  const legend = make("ul", "legend");
  spec.series.forEach((one, n) => {
    const kind = one.large ? "circle" : MARKS[n % MARKS.length];
    const group = svg("g", { class: `s${n % 6}` });
    if (one.line) {
      const path = one.points.map(([x, y], i) => `${i ? "L" : "M"}${px(x)} ${py(y)}`).join("");
      group.append(svg("path", { class: "line", d: path }));
    }
    if (!spec.lines || one.points.length <= 60) {
      for (const [x, y, label] of one.points) {
        const title = svg("title", {}, `${label || one.name}: ${short(x)}, ${short(y)}`);
        group.append(svg("path", { class: one.large ? "dot large" : "dot", d: markPath(kind, px(x), py(y), one.large ? 6.5 : 3.5) }, title));
      }
    }
    picture.append(group);
    const key = svg("svg", { class: `s${n % 6}`, viewBox: "0 0 12 12", width: 12, height: 12 }, svg("path", { class: "dot", d: markPath(kind, 6, 6, 4) }));
    legend.append(make("li", "", key, one.name));
  });
  return make("figure", "plot", spec.title ? make("h3", "", spec.title) : null, picture, spec.series.length > 1 ? legend : null);
}

function drawFigures(spec) {
  const figures = spec.figures.map((item) => make("div", "figure", make("h3", "", item.label), make("p", "big", item.value), item.about ? make("p", "muted", item.about) : null));
  return make("div", "card figures wide", make("div", "row", ...figures), spec.verdict ? make("p", "verdict", spec.verdict) : null);
}

function drawSteps(spec) {
  const steps = spec.steps.map((step) =>
    make("li", "", make("strong", "", step.title), step.gain ? make("span", "tag gain", step.gain) : null, step.text ? make("p", "", step.text) : null, step.where ? make("p", "muted", step.where) : null),
  );
  const list = steps.length ? make("ol", "", ...steps) : make("p", "muted", spec.nothing);
  return make("div", "card steps wide", spec.title ? make("h3", "", spec.title) : null, list);
}

function drawPictures(spec) {
  const shown = spec.pictures.map((item) => {
    const picture = make("img", "");
    picture.alt = item.title;
    [picture.width, picture.height] = [item.width, item.height];
    picture.src = `data:image/png;base64,${item.png}`;
    return make("figure", "", picture, make("figcaption", "", make("b", "", item.title), item.about ? make("span", "muted", item.about) : null));
  });
  return make("div", "card pictures wide", spec.title ? make("h3", "", spec.title) : null, make("div", "row", ...shown));
}

const DRAW = { table: (spec) => drawTable(spec).element, bars: drawBars, plot: drawPlot, figures: drawFigures, steps: drawSteps, pictures: drawPictures, graph: (spec) => drawGraph(spec) };
