// The analysis summary of a profile: sections that fold, one choice of an op for all of them.

const folds = new Map();

/** A section that folds; `fill` draws it when it is first open. */
function fold(id, title, note, open, fill) {
  const box = make("details", "fold");
  const body = make("div", "fold-body");
  const head = make("h2", "", title);
  head.id = `${id}-title`;
  box.append(make("summary", "", head), body);
  box.open = open;
  link(id, title);
  nav.lastChild.addEventListener("click", () => (box.open = true));
  let filled = false;
  const show = () => {
    if (filled || !box.open) return;
    filled = true;
    if (note) body.append(make("p", "note", note));
    body.append(...fill());
  };
  box.addEventListener("toggle", show);
  folds.set(id, { open: () => ((box.open = true), show()) });
  const made = make("section", "", box);
  made.id = id;
  made.setAttribute("aria-labelledby", head.id);
  document.getElementById("main").append(made);
  show();
}

const tables = {};
let chosenOp = -1;
function pick(row, reveal = true) {
  chosenOp = row;
  if (timeline) timeline.select(row, reveal);
  if (tables.ops) tables.ops.select(row);
  document.querySelectorAll(".graph .node").forEach((node) => {
    const mine = Number(node.dataset.row) === row;
    node.classList.toggle("chosen", mine);
    const box = node.closest(".scroll");
    if (mine && reveal) box.scrollTo(node.getBBox().x - box.clientWidth / 2, node.getBBox().y - box.clientHeight / 2);
  });
}

/** An op from another section: its row, its place in the timeline, and the timeline in view. */
function showOp(row) {
  if (row < 0) return;
  folds.get("timeline-fold").open();
  pick(row);
  document.getElementById("timeline-fold").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

document.getElementById("top").append(make("h1", "", content.title), make("ul", "facts", ...content.facts.map(([name, value]) => make("li", "", make("span", "", name), value))));
["summary", "timeline", "ops"].forEach((id) => document.getElementById(id).remove());

content.lead.forEach((section, n) => fold(`lead-${n}`, section.title, section.note, true, () => [make("div", "parts", ...section.parts.map((part) => DRAW[part.draw](part)))]));
fold("overall", "HTP Overall Summary", "", true, () => [make("div", "parts", ...content.overall.map((part) => DRAW[part.draw](part)))]);

const rowOf = new Map(content.ops.rows.map((row, i) => [row[0], i]));
if (content.timeline.events.start.length) {
  const hint = "Drag to move, drag the ruler to zoom in, click an op to choose it; after a click the wheel zooms. Keys: ← → + − ↑ ↓ 0.";
  fold("timeline-fold", "Timeline", "", true, () => {
    timeline = drawTimeline(content.timeline, content.ops, pick);
    repaint.push(timeline.redraw);
    return [timeline.element, make("p", "note hint", hint)];
  });
}
if (content.types.rows.length) {
  fold("types", "QNN Op Types", "A click on a type shows its ops; ◔ draws a pie of a column.", true, () => {
    const made = drawTable(content.types, {
      pick: (i) => {
        folds.get("qnn-ops").open();
        tables.ops.choose(1, content.types.rows[i][0]);
        document.getElementById("qnn-ops").scrollIntoView();
      },
    });
    tables.types = made;
    return [made.element];
  });
  fold("qnn-ops", "QNN Ops", "Every op in the order it runs. Filter by several columns at once; a click shows it in the timeline and in the graph.", true, () => {
    tables.ops = drawTable(content.ops, { pick: showOp, search: (i) => content.sources[i].join("\n") });
    return [tables.ops.element];
  });
}
if (content.graph) fold("graph", "Graph", "What each op reads, coloured by its cycles. A click shows it in the timeline and in the table.", false, () => [drawGraph(content.graph)]);
if (content.timeline.events.start.length) {
  const { events, kinds, names, units, mhz } = content.timeline;
  fold("htp-ops", "HTP Ops", `${fixed(events.start.length, 0)} activities on the chip's units, system services among them.`, false, () => {
    const rows = events.start.map((start, i) => [kinds[events.kind[i]], events.row[i] < 0 ? "" : names[events.row[i]], units[events.unit[i]], start, events.us[i], Math.round(events.us[i] * mhz), events.bytes[i]]);
    tables.htp = drawTable({ ...content.htp, rows }, { pick: (i) => showOp(events.row[i]) });
    return [tables.htp.element];
  });
  const path = content.timeline.critical;
  fold("dominant", "Dominant Path", "At each moment the activity that comes first: HMX, HVX, DMA reads, DMA writes, checkpoints, synchronizing. The pieces do not overlap and add up to the accelerator's time.", false, () => {
    const rows = path.start.map((start, i) => [kinds[path.kind[i]], path.row[i] < 0 ? "" : names[path.row[i]], content.priorities[path.priority[i]], start, path.us[i], Math.round(path.us[i] * mhz)]);
    tables.dominant = drawTable({ ...content.dominant, rows }, { pick: (i) => showOp(path.row[i]) });
    return [tables.dominant.element];
  });
  fold("services", "System Services", "What the chip does that is no op of the network.", false, () => [drawTable(content.services).element]);
}
content.sections.forEach((section, n) => fold(`section-${n}`, section.title, section.note, true, () => [make("div", "parts", ...section.parts.map((part) => DRAW[part.draw](part)))]));
// a name that a sentence mentions leads to its op
document.querySelectorAll("[data-op]").forEach((element) => element.addEventListener("click", () => showOp(rowOf.get(element.dataset.op) ?? -1)));
root.dataset.drawn = "yes";
