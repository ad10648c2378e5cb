// Pies: the value of each row relative to the sum of those that are shown.

const SLICES = 11;

/** A pie of [label, value, row], the largest first, small ones together; `pick(row)` is called for one that is clicked. */
function drawPie(column, parts, pick) {
  const sum = parts.reduce((total, part) => total + Math.max(0, part[1]), 0);
  const sorted = parts.filter((part) => part[1] > 0).sort((a, b) => b[1] - a[1]);
  const shown = sorted.slice(0, SLICES);
  const rest = sorted.slice(SLICES).reduce((total, part) => total + part[1], 0);
  if (rest > 0) shown.push([`${sorted.length - SLICES} others`, rest, -1]);
  if (!sum) return make("p", "nothing", `Nothing of ${column.name} is above 0.`);
  const picture = svg("svg", { viewBox: "-1.06 -1.06 2.12 2.12", role: "img", "aria-label": `${column.name}: ${shown.map(([label, value]) => `${label} ${percent(value / sum, 0)}`).join(", ")}` });
  const legend = make("ol", "pie-legend");
  let at = 0;
  shown.forEach(([label, value, row], n) => {
    const part = value / sum;
    const title = `${label}: ${cellText(column, value)}, ${percent(part)}`;
    const slice = svg("path", { class: `slice q${n % 12}`, d: slicePath(at, at + part) }, svg("title", {}, title));
    at += part;
    const item = make("li", "", make("i", `q${n % 12}`), make("span", "label", label), make("span", "", cellText(column, value)), make("span", "share", percent(part)));
    item.title = title;
    if (pick && row >= 0) {
      slice.addEventListener("click", () => pick(row));
      item.addEventListener("click", () => pick(row));
      item.classList.add("pick");
    }
    picture.append(slice);
    legend.append(item);
  });
  return make("figure", "pie", picture, make("div", "", make("h3", "", `${column.name}: ${cellText(column, sum)} in all`), legend));
}

/** A slice between two parts of the whole, clockwise from the top, with a hole in the middle. */
function slicePath(from, to) {
  if (to - from > 0.9999) to = from + 0.9999;
  const [a, b] = [from, to].map((part) => 2 * Math.PI * (part - 0.25));
  const at = (angle, r) => `${(r * Math.cos(angle)).toFixed(4)} ${(r * Math.sin(angle)).toFixed(4)}`;
  const large = to - from > 0.5 ? 1 : 0;
  return `M${at(a, 1)}A1 1 0 ${large} 1 ${at(b, 1)}L${at(b, 0.52)}A0.52 0.52 0 ${large} 0 ${at(a, 0.52)}Z`;
}
