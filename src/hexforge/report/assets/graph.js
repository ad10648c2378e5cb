// The graph of tasks, laid out by the page's writer: boxes coloured by their time or by their SQNR.

const BOX = { width: 216, height: 40, across: 230, down: 62 };

/** A colour between two of the page's, by a part from 0 to 1. */
function blend(part, from, to) {
  return `color-mix(in srgb, var(${to}) ${Math.round(100 * Math.max(0, Math.min(1, part)))}%, var(${from}))`;
}

const COLOURS = {
  time: (node, most) => blend(0.9 * Math.sqrt(node.us / most), "--surface", "--wait"),
  // 15 dB and less is bad, 35 dB in between, 55 dB and more good
  sqnr: (node) => {
    if (node.sqnr === null) return "var(--lane)";
    return node.sqnr < 35 ? blend((35 - node.sqnr) / 20, "--surface", "--wait") : blend((node.sqnr - 35) / 25, "--surface", "--dma");
  },
};

function drawGraph(spec) {
  const { nodes, edges } = spec;
  const width = Math.max(1, ...nodes.map((node) => node.x + 1)) * BOX.across;
  const height = Math.max(1, ...nodes.map((node) => node.y + 1)) * BOX.down;
  const most = Math.max(1e-9, ...nodes.map((node) => node.us));
  const centre = (node) => node.x * BOX.across + BOX.across / 2;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `The ${nodes.length} tasks and what they read` });
  for (const [from, to] of edges) {
    const [a, b] = [nodes[from], nodes[to]];
    const [x1, y1, x2, y2] = [centre(a), a.y * BOX.down + BOX.height + 4, centre(b), b.y * BOX.down + 4];
    const bend = Math.max(14, (y2 - y1) / 2);
    picture.append(svg("path", { class: "edge", d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` }));
  }
  const boxes = nodes.map((node) => {
    const left = centre(node) - BOX.width / 2;
    const top = node.y * BOX.down + 4;
    const rect = svg("rect", { x: left, y: top, width: BOX.width, height: BOX.height, rx: 9 });
    const said = [timeText(node.us), node.sqnr === null ? null : `${short(node.sqnr)} dB`].filter(Boolean).join(", ");
    const group = svg(
      "g",
      { class: "node", tabindex: 0, "data-row": node.row },
      rect,
      svg("text", { x: left + 10, y: top + 17 }, middle(node.label, 30)),
      svg("text", { class: "op", x: left + 10, y: top + 32 }, `${middle(node.op, 17)}  ${said}`),
      svg("title", {}, `${node.name}\n${node.op}\n${said}`),
    );
    const choose = () => pick(node.row);
    group.addEventListener("click", choose);
    group.addEventListener("keydown", (event) => event.key === "Enter" && choose());
    picture.append(group);
    return rect;
  });

  const scale = make("span", "scale");
  const SCALES = { time: ["short", "long"], sqnr: ["15 dB", "60 dB"] };
  function colour(by) {
    nodes.forEach((node, i) => (boxes[i].style.fill = COLOURS[by](node, most)));
    buttons.forEach((made) => made.setAttribute("aria-pressed", made.dataset.by === by));
    scale.replaceChildren(SCALES[by][0], make("i", by), SCALES[by][1]);
  }
  const measured = nodes.some((node) => node.sqnr !== null);
  const buttons = (measured ? ["time", "sqnr"] : ["time"]).map((by) => {
    const made = button(by === "time" ? "Time" : "SQNR", `Colour by ${by === "time" ? "time" : "SQNR"}`, () => colour(by));
    made.dataset.by = by;
    return made;
  });
  const box = make("div", "scroll", picture);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Graph");
  colour(spec.first);
  return make("div", "graph wide", make("div", "controls", ...buttons, scale), box);
}

/** A text without its middle where it is too long: the end of a path tells most. */
function middle(text, letters) {
  const head = Math.floor((letters - 1) / 3);
  return text.length <= letters ? text : `${text.slice(0, head)}…${text.slice(head + 1 - letters)}`;
}
