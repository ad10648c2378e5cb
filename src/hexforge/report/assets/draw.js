// Elements, amounts and words: what all the other files use.

const SVG = "http://www.w3.org/2000/svg";

/** An element with a class, properties and children; text is only ever set as text. */
function make(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function button(label, title, action) {
  const made = make("button", "", label);
  made.type = "button";
  made.title = title;
  made.setAttribute("aria-label", title);
  made.addEventListener("click", action);
  return made;
}

function fixed(value, digits) {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A number with about three figures that matter. */
function short(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value)) return fixed(value, 0);
  return fixed(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(size))));
}

function timeText(us) {
  return us >= 1e6 ? `${short(us / 1e6)} s` : us >= 1e3 ? `${short(us / 1e3)} ms` : us >= 0.1 || us === 0 ? `${short(us)} µs` : `${short(us * 1e3)} ns`;
}

function sizeText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(3, Math.floor(Math.log2(bytes) / 10));
  return `${short(bytes / 1024 ** power)} ${["B", "KiB", "MiB", "GiB"][power]}`;
}

function percent(part, digits = 1) {
  return `${fixed(100 * part, digits)} %`;
}

/** The end of a node's path, which tells most. */
function tail(name, count = 2) {
  const parts = name.split("/").filter(Boolean);
  return parts.length > count ? parts.slice(-count).join("/") : name;
}

/** The first of the texts that fits into so many letters, else the last cut. */
function fitting(texts, letters) {
  const found = texts.find((text) => text.length <= letters);
  if (found !== undefined) return found;
  return letters > 4 ? `${texts.at(-1).slice(0, letters - 1)}…` : "";
}

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Round steps (1, 2, 5 times a power of ten) from low to high, about so many. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-9); n++) found.push(n * step);
  return found;
}

/** A tick's number without needless zeros. */
function tickText(value) {
  return Number(value.toPrecision(8)).toLocaleString("en-US", { maximumFractionDigits: 8 });
}

/** One tooltip for the page; lines are [label, text], or one text as the title. */
const tooltip = (() => {
  const box = make("div", "tooltip");
  box.hidden = true;
  box.setAttribute("role", "status");
  document.body.append(box);
  return {
    show(lines, x, y) {
      box.replaceChildren(
        ...lines.map((line) => (typeof line === "string" ? make("strong", "", line) : make("div", "", make("span", "", line[0]), line[1]))),
      );
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      box.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
      box.style.top = `${y + height + 22 > innerHeight ? Math.max(8, y - height - 12) : y + 16}px`;
    },
    hide() {
      box.hidden = true;
    },
  };
})();
