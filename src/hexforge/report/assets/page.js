// The page: summary, timeline, tables and sections put together.

// ---- choosing a task: the timeline and the table show the same one
function pick(row, reveal = true) {
  timeline.select(row, reveal);
  table.select(row);
}

function summary(facts) {
  const tags = make("ul", "facts", ...facts.facts.map(([name, value]) => make("li", "", make("span", "", name), value)));
  const left = make("div", "", latencyCard(facts), memoryCard(facts), criticalCard(facts));
  const right = make("div", "", whereCard(facts), slowCard(facts));
  return [tags, make("div", "cards", left, right)];
}

function latencyCard(facts) {
  const top = facts.high_ms * 1.1;
  const band = make("span", "band");
  band.style.left = `${(100 * facts.low_ms) / top}%`;
  band.style.width = `${(100 * (facts.high_ms - facts.low_ms)) / top}%`;
  const dot = make("span", "point");
  dot.style.left = `${(100 * facts.latency_ms) / top}%`;
  const [scale, unit] = facts.latency_ms < 0.1 ? [1e3, "µs"] : [1, "ms"];
  const [low, high] = [short(facts.low_ms * scale), short(facts.high_ms * scale)];
  const rate = make("p", "second", make("strong", "", fixed(facts.throughput, facts.throughput < 100 ? 1 : 0)), facts.batch > 1 ? " samples per second" : " per second");
  return make(
    "div",
    "card latency",
    make("h3", "", facts.batch > 1 ? `One inference of ${facts.batch} samples` : "One inference"),
    make("p", "big", short(facts.latency_ms * scale), make("small", "", ` ${unit}`)),
    make("div", "interval", band, dot),
    make("p", "muted", `${low} to ${high} ${unit} for nine of ten models`),
    ...(facts.partial ? [make("p", "second", make("strong", "", facts.partial)), make("p", "", facts.whole)] : [rate]),
    make("p", "verdict", facts.bound),
  );
}

/** Parts of a whole side by side; those from `named` on carry their name. */
function stack(parts, named, say = (part) => part.name) {
  const whole = parts.reduce((sum, part) => sum + part.us, 0) || 1;
  const bar = make("div", "stack");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map((part) => `${part.name} ${percent(part.us / whole, 0)}`).join(", "));
  for (const part of parts.filter(({ us }) => us > 0)) {
    const piece = make("span", `p-${part.key}`, part.us / whole > named ? make("b", "", say(part)) : null);
    piece.style.flexGrow = part.us / whole;
    piece.title = `${part.name}: ${timeText(part.us)}, ${percent(part.us / whole)}`;
    bar.append(piece);
  }
  return bar;
}

function whereCard(facts) {
  const whole = facts.parts.reduce((sum, part) => sum + part.us, 0) || 1;
  const legend = make("ul", "legend rows");
  for (const part of facts.parts) {
    legend.append(
      make("li", "", make("i", `p-${part.key}`), make("b", "", part.name), make("span", "muted about", part.about), make("span", "", timeText(part.us)), make("span", "share", percent(part.us / whole))),
    );
  }
  const note = facts.factor !== 1 ? make("p", "muted", `Each part is ${short(facts.factor)} times what it is with qnn_dlc: what this runtime's path to the device costs.`) : null;
  return make("div", "card where", make("h3", "", "Where the time goes"), stack(facts.parts, 0.09), legend, note);
}

function memoryCard(facts) {
  const lines = facts.memory.map((item) => {
    const text = item.of ? `${sizeText(item.bytes)} of ${sizeText(item.of)}` : sizeText(item.bytes);
    const row = make("li", "", make("b", "", item.name), make("span", "muted about", item.about), make("span", "", text));
    if (item.of) {
      const meter = make("span", "meter", make("span"));
      meter.firstChild.style.width = `${(100 * item.bytes) / item.of}%`;
      row.append(meter);
    }
    return row;
  });
  return make("div", "card memory", make("h3", "", "Memory"), make("ul", "lines", ...lines));
}

function slowCard(facts) {
  const most = facts.bottlenecks.map((item) => {
    const name = button(tail(item.name, 3), `Show ${item.name} in the timeline`, () => {
      pick(item.row);
      document.getElementById("timeline").scrollIntoView({ behavior: "smooth" });
    });
    name.title = item.name;
    return make("li", "", name, make("span", "tag", item.op), make("p", "", item.text));
  });
  return make("div", "card slow", make("h3", "", "What takes longest"), make("ol", "", ...most));
}

function criticalCard(facts) {
  const { text, parts } = facts.critical;
  return make("div", "card critical", make("h3", "", "Critical path"), stack(parts, 0.2), make("p", "", text));
}

// ---- put together
document.getElementById("top").append(make("h1", "", content.summary.model), ...content.lead.map((section, n) => drawSection(section, `lead-${n}`)));
/** What one inference takes; a page that is about something else has none of it. */
function drawTime() {
  if (content.lead.length) document.getElementById("summary").append(heading("summary", "Time"));
  else link("summary", "Summary");
  document.getElementById("summary").append(...summary(content.summary));

  timeline = drawTimeline(content.timeline, content.ops, pick);
  repaint.push(timeline.redraw);
  const hint = "Drag to move, drag the ruler to zoom in, click a task to choose it; after a click the wheel zooms. Keys: ← → + − ↑ ↓ 0.";
  document.getElementById("timeline").append(heading("timeline", "Timeline"), timeline.element, make("p", "note hint", hint));

  table = drawTable(content.ops, { search: (i) => content.timeline.fused[i].join("\n"), pick });
  const kinds = drawTable(content.kinds, { pick: (i) => table.choose(1, content.kinds.rows[i][0]) });
  document.getElementById("ops").append(
    heading("ops", "Ops"),
    make("p", "note", "By type; a click shows the tasks of that type."),
    kinds.element,
    make("p", "note", "Every task. Sort by a column's head; a click on a row shows it in the timeline."),
    table.element,
  );
}
if (content.timeline) drawTime();
else ["summary", "timeline", "ops"].forEach((id) => document.getElementById(id).remove());

content.sections.forEach((section, n) => document.getElementById("main").append(drawSection(section, `section-${n}`)));
root.dataset.drawn = "yes";
