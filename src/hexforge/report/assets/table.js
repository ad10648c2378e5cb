// A table to sort by any column and to filter, of any number of rows: only those in view are in the document.

const ROW = 30;
const SPARE = 12;
const FEW = 60;

/** A long path by its end, which tells most; the whole is its title and is what is searched. */
function ending(text, letters = 46) {
  return text.length > letters && text.includes("/") ? `…${text.slice(1 - letters)}` : text;
}

/** A task's name without the op that the next column has: conv1_Conv2d is conv1. */
function withoutOp(name, op) {
  return name.endsWith(`_${op}`) ? name.slice(0, -1 - op.length) : name;
}

/** For each row how many texts of the column come before its own. */
function textRanks(rows, column) {
  const order = new Intl.Collator("en", { numeric: true });
  const values = [...new Set(rows.map((row) => String(row[column])))].sort(order.compare);
  const at = new Map(values.map((value, n) => [value, n]));
  return Float64Array.from(rows, (row) => at.get(String(row[column])));
}

/** For each row how many numbers of the column are below its own; nothing is below all. */
function numberRanks(rows, column) {
  const values = Float64Array.from(rows, (row) => row[column] ?? -Infinity);
  const sorted = values.slice().sort();
  return values.map((value) => {
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  });
}

/** What a filter of a column asks of its values: a text in them, or a number, a bound or a range. */
function tester(text, number) {
  if (!number) {
    const words = text.toLowerCase();
    return (value) => String(value ?? "").toLowerCase().includes(words);
  }
  const range = text.match(/^(-?[\d.]+)\s*\.\.\s*(-?[\d.]+)$/);
  if (range) return (value) => value >= Number(range[1]) && value <= Number(range[2]);
  const bound = text.match(/^(>=|<=|>|<|=)?\s*(-?[\d.]+(?:e-?\d+)?)$/i);
  if (!bound) return () => false;
  const limit = Number(bound[2]);
  const ask = { ">": (v) => v > limit, ">=": (v) => v >= limit, "<": (v) => v < limit, "<=": (v) => v <= limit, "=": (v) => v === limit };
  return ask[bound[1] || "="];
}

function cellText(column, value) {
  if (value === null) return "–";
  if (column.kind === "number") return fixed(value, column.digits);
  if (column.kind === "bytes") return value === 0 ? "–" : sizeText(value);
  if (column.kind === "share") return percent(value, column.digits);
  return value;
}

/**
 * Draws a table's data; `more.search(i)` is text of a row to find it by beside its cells, `more.pick(i)` is called for a row
 * that is clicked. Returns {element, select(i), filter(text)}.
 */
function drawTable(spec, more = {}) {
  const { columns, rows } = spec;
  const numeric = columns.map((column) => column.kind !== "text");
  const ranks = columns.map(() => null);
  const found = rows.map((row, i) => [...row.filter((_, k) => !numeric[k]), more.search ? more.search(i) : ""].join("\n").toLowerCase());
  const largest = columns.map((column, k) => (column.kind === "share" ? Math.max(1e-9, ...rows.map((row) => row[k] || 0)) : 0));
  const dense = columns.length > 12;
  const few = rows.length <= FEW; // all of them are in the document, so that their texts may wrap
  let sort = spec.sort === null ? null : { column: spec.sort, down: true };
  let order = rows.map((_, i) => i);
  let selected = -1;

  const search = make("input");
  search.type = "search";
  search.placeholder = "Filter…";
  search.setAttribute("aria-label", `Filter ${spec.title || "rows"} by text`);
  const chosen = columns.map((column, k) => {
    if (!column.choose) return null;
    const values = [...new Set(rows.map((row) => row[k]))].sort();
    if (values.length < 2) return null;
    const select = make("select", "", ...[`${column.name}: all`, ...values].map((text, n) => new Option(text, n ? text : "")));
    select.setAttribute("aria-label", `Filter by ${column.name}`);
    select.addEventListener("change", () => update(true));
    return select;
  });
  const count = make("output", "count");
  const controls = make("div", "controls", search, ...chosen, count);
  controls.hidden = rows.length < 8;
  search.addEventListener("input", () => update(true));

  const heads = columns.map((column, k) => {
    const press = button(column.name, column.about ? `${column.name}: ${column.about}. Sort` : `Sort by ${column.name}`, () => {
      const down = sort && sort.column === k ? !sort.down : numeric[k];
      sort = { column: k, down };
      update(true);
    });
    const chart = spec.pies && numeric[k] ? button("◔", `Pie of ${column.name}`, () => togglePie(k)) : null;
    if (chart) chart.className = "chart";
    const head = make("th", numeric[k] ? "number" : "", press, chart);
    head.scope = "col";
    return head;
  });
  const body = make("tbody");
  const foot = make("tfoot");
  const filters = columns.map((column, k) => {
    if (!spec.filters) return null;
    const input = make("input");
    input.type = "search";
    input.placeholder = numeric[k] ? "> 0" : "has…";
    input.title = numeric[k] ? `Filter ${column.name}: 5, > 5, <= 5, 1..5` : `Filter ${column.name}: rows that have this text`;
    input.setAttribute("aria-label", `Filter by ${column.name}`);
    input.addEventListener("input", () => update(true));
    return input;
  });
  const filterRow = spec.filters ? make("tr", "filters", ...filters.map((input, k) => make("th", numeric[k] ? "number" : "", input))) : null;
  const grid = make("table", "", make("thead", "", make("tr", "", ...heads), filterRow), body, foot);
  grid.setAttribute("aria-rowcount", rows.length + 1);
  const box = make("div", "scroll", grid);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", spec.title || "Table");
  const nothing = make("p", "nothing", "No row has that.");
  const pie = make("div", "pie-place");
  let pieOf = -1;
  function togglePie(k) {
    pieOf = pieOf === k ? -1 : k;
    paintPie();
  }
  function paintPie() {
    heads.forEach((head, k) => head.querySelector(".chart")?.setAttribute("aria-pressed", k === pieOf));
    pie.replaceChildren(...(pieOf < 0 ? [] : [drawPie(columns[pieOf], order.map((i) => [String(rows[i][0]), rows[i][pieOf] || 0, i]), more.pick)]));
  }
  const element = make("div", `table${spec.narrow ? "" : " wide"}${few ? " few" : ""}${dense ? " dense" : ""}`, spec.title ? make("h3", "", spec.title) : null, controls, pie, box, nothing);

  function line(i, at) {
    const row = make("tr", i === selected ? "selected" : "");
    row.setAttribute("aria-rowindex", at + 2);
    if (i === selected) row.setAttribute("aria-selected", "true");
    columns.forEach((column, k) => {
      const text = cellText(column, rows[i][k]);
      const cell = make("td", numeric[k] ? "number" : "text");
      if (column.kind === "share") {
        const bar = make("span", "bar");
        bar.style.width = `${(100 * (rows[i][k] || 0)) / largest[k]}%`;
        cell.classList.add("share");
        cell.append(make("span", "track", bar), text);
      } else if (column.choose) {
        cell.append(make("span", `tag ${/^(HMX|HVX|DMA|overhead|CPU)$/.test(text) ? `u-${text.toLowerCase()}` : ""}`, text));
      } else {
        cell.append(numeric[k] || few ? text : dense ? middle(withoutOp(text, rows[i][k + 1]), 24) : ending(text));
      }
      if (!numeric[k]) cell.title = text;
      row.append(cell);
    });
    if (more.pick) {
      row.classList.add("pick");
      row.addEventListener("click", () => more.pick(i));
    }
    return row;
  }

  function clear() {
    search.value = "";
    [...chosen, ...filters].forEach((c) => c && (c.value = ""));
  }

  let shown = "";
  function render(all = false) {
    const first = all || few ? 0 : Math.max(0, Math.floor(box.scrollTop / ROW) - SPARE);
    const last = Math.min(order.length, all || few ? 400 : Math.ceil((box.scrollTop + (box.clientHeight || 600)) / ROW) + SPARE);
    const now = `${first} ${last} ${selected}`;
    if (now === shown) return;
    shown = now;
    const space = (height) => {
      const row = make("tr", "space");
      row.style.height = `${height}px`;
      row.setAttribute("aria-hidden", "true");
      return row;
    };
    body.replaceChildren(
      ...(first ? [space(first * ROW)] : []),
      ...order.slice(first, last).map((i, n) => line(i, first + n)),
      ...(last < order.length && !all ? [space((order.length - last) * ROW)] : []),
    );
  }

  let asked = null; // what the rows were last filtered by
  let kept = [];
  function filtered() {
    const now = [search, ...chosen, ...filters].map((c) => (c ? c.value : "")).join("\0");
    if (now === asked) return;
    asked = now;
    const tests = filters.map((filter, k) => [k, filter && filter.value.trim() ? tester(filter.value.trim(), numeric[k]) : null]).filter(([, test]) => test);
    chosen.forEach((c, k) => c && c.value && tests.push([k, (value) => value === c.value]));
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    kept = [];
    rows.forEach((row, i) => {
      if (words.every((word) => found[i].includes(word)) && tests.every(([k, test]) => test(row[k]))) kept.push(i);
    });
    count.textContent = kept.length === rows.length ? `${rows.length} rows` : `${kept.length} of ${rows.length} rows`;
    nothing.hidden = kept.length > 0;
    box.hidden = kept.length === 0;
    if (columns.some((column) => column.total)) {
      const cells = columns.map((column, k) => {
        let total = 0;
        if (column.total === "sum") for (const i of kept) total += rows[i][k] || 0;
        else if (column.total) for (const i of kept) total = Math.max(total, rows[i][k] || 0);
        const text = column.total ? cellText(column, total) : k === 0 ? (kept.length === rows.length ? "all" : "shown") : "";
        return make("td", numeric[k] ? "number" : "text", column.total === "max" ? `max ${text}` : text);
      });
      foot.replaceChildren(make("tr", "", ...cells));
    }
  }

  function update(top) {
    filtered();
    order = kept;
    if (sort) {
      const { column, down } = sort;
      const rank = (ranks[column] ||= numeric[column] ? numberRanks(rows, column) : textRanks(rows, column));
      // rank and place in one number: sorting those needs no function, and equal ones stay in their order
      const size = rows.length;
      const keys = Float64Array.from(kept, (i) => (down ? size - rank[i] : rank[i]) * size + i).sort();
      order = Array.from(keys, (key) => key % size);
    }
    heads.forEach((head, k) => {
      const mine = sort && sort.column === k;
      head.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
    });
    if (pieOf >= 0) paintPie();
    if (top) box.scrollTop = 0;
    shown = "";
    render();
  }

  box.addEventListener("scroll", () => render(), { passive: true });
  addEventListener("beforeprint", () => render(true));
  addEventListener("afterprint", () => update(false));
  update(false);
  new ResizeObserver(() => render()).observe(box);
  return {
    element,
    /** Highlights a row and brings it into view, through a filter that hides it. */
    select(i) {
      selected = i;
      if (i >= 0) {
        if (!order.includes(i)) {
          clear();
          update(false);
        }
        const at = order.indexOf(i) * ROW;
        if (at < box.scrollTop + ROW || at > box.scrollTop + box.clientHeight - 3 * ROW) box.scrollTop = at - box.clientHeight / 2;
      }
      render();
    },
    filter(text) {
      clear();
      search.value = text;
      update(true);
    },
    /** Filters by one value of a column that can be chosen by. */
    choose(column, value) {
      clear();
      if (chosen[column]) chosen[column].value = value;
      else if (filters[column]) filters[column].value = value;
      update(true);
    },
  };
}
