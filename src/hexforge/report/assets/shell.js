// What every page has: its data, the bar at its top, its theme, its sections.

const content = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const nav = document.getElementById("nav");

function link(id, text) {
  const made = make("a", "", text);
  made.href = `#${id}`;
  nav.append(made);
}

function heading(id, text) {
  const made = make("h2", "", text);
  made.id = `${id}-title`;
  link(id, text);
  return made;
}

// ---- theme: the system's, the address's (?theme=dark), or the one chosen before
const stored = {
  read() {
    try {
      return localStorage.getItem("hexforge-theme");
    } catch {
      return null; // a page from a file may have no storage
    }
  },
  write(theme) {
    try {
      localStorage.setItem("hexforge-theme", theme);
    } catch {
      // not remembered, then
    }
  },
};
const system = matchMedia("(prefers-color-scheme: dark)");
const repaint = [];
function setTheme(theme) {
  root.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "☀ Light" : "☾ Dark";
  repaint.forEach((paint) => paint());
}
const known = (theme) => (theme === "dark" || theme === "light" ? theme : null);
setTheme(known(new URLSearchParams(location.search).get("theme")) || known(stored.read()) || (system.matches ? "dark" : "light"));
system.addEventListener("change", () => known(stored.read()) || setTheme(system.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => {
  const theme = root.dataset.theme === "dark" ? "light" : "dark";
  stored.write(theme);
  setTheme(theme);
});
let screen = null;
addEventListener("beforeprint", () => {
  screen = root.dataset.theme;
  setTheme("light");
  if (timeline) timeline.paint(); // at once: no frame comes before the print
});
addEventListener("afterprint", () => screen && setTheme(screen));

// ---- what a page's own script draws, once it has
let timeline = null;
let table = null;

function drawSection(section, id) {
  const parts = make("div", "parts", ...section.parts.map((part) => DRAW[part.draw](part)));
  const made = make("section", "", heading(id, section.title), section.note ? make("p", "note", section.note) : null, parts);
  made.id = id;
  made.setAttribute("aria-labelledby", `${id}-title`);
  return made;
}
