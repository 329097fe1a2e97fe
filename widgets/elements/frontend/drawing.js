// What the pictures of a step share; put before their own scripts, for a page loads each of those by itself.
const SVG = "http://www.w3.org/2000/svg";
const UNITS = { GiB: 2 ** 30, MiB: 2 ** 20, KiB: 2 ** 10 };
const MOVING = "schedule-explorer-moving"; // a hand moves the budget: { bytes }, or null once it is let go or settled
const PREVIEW = "schedule-explorer-preview"; // what is known for it: { bytes, point }
const LAYERS = "schedule-explorer-layers"; // the figure of the layers that belongs to it, or null for the answer's own

const svg = (tag, attributes = {}, ...children) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const html = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

// Arrays come packed; whatever else a table has is as it is.
const KINDS = { i4: Int32Array, u1: Uint8Array, f4: Float32Array, f8: Float64Array };
const unpack = (value) => {
  if (Array.isArray(value)) return value.map(unpack);
  if (!value || typeof value !== "object") return value;
  if (value.bdata === undefined) return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, unpack(v)]));
  const bytes = Uint8Array.from(atob(value.bdata), (x) => x.charCodeAt(0));
  return new KINDS[value.dtype](bytes.buffer);
};
const table = (text) => (text ? unpack(JSON.parse(text)) : null);

const unitFor = (bytes) => Object.keys(UNITS).find((name) => bytes >= UNITS[name]) ?? "KiB";
const amount = (bytes, unit, digits) => {
  const shown = bytes / UNITS[unit];
  return `${shown.toFixed(digits ?? (Math.abs(shown) >= 100 ? 0 : Math.abs(shown) >= 10 ? 1 : 2))} ${unit}`;
};
const told = (bytes) => (bytes < 1024 ? `${Math.round(bytes)} B` : amount(bytes, unitFor(bytes)));
const milliseconds = (ms) => `${ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2)} ms`;
const signed = (share, digits) => {
  const shown = Math.abs(share).toFixed(digits);
  return Number(shown) === 0 ? shown : `${share < 0 ? "−" : "+"}${shown}`;
};

// Round numbers from 0 to `top`, at most so many.
const ticks = (low, top, most) => {
  const raw = (top - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((x) => x * power).find((x) => x >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= top * (1 + 1e-9); i += 1) found.push(i * step);
  // As few as tell each of them as it is: 2.5 is no 3.
  let digits = 0;
  while (digits < 9 && found.some((x) => Math.abs(Number(x.toFixed(digits)) - x) > step * 1e-6)) digits += 1;
  return { found, digits };
};

const rootOf = (el) => el.closest(".schedule-explorer") ?? el;
const announce = (el, kind, detail) => rootOf(el).dispatchEvent(new CustomEvent(kind, { detail }));
const listen = (el, kind, handler) => {
  const heard = ({ detail }) => handler(detail);
  const root = rootOf(el);
  root.addEventListener(kind, heard);
  return () => root.removeEventListener(kind, heard);
};

// A pointer that is down on `target`, until it is let go: `moved` with each move, `over` with whether it counts.
const follow = (event, { moved, over }) => {
  const { currentTarget: target, pointerId } = event;
  target.setPointerCapture(pointerId);
  const end = new AbortController();
  target.addEventListener("pointermove", moved, end);
  for (const type of ["pointerup", "pointercancel"]) {
    target.addEventListener(type, (last) => (end.abort(), over(last, type === "pointerup")), end);
  }
};

// A card beside the pointer, within `el`.
const tipIn = (el) => {
  const tip = html("div", { className: "schedule-explorer-tip", hidden: true });
  el.append(tip);
  return {
    show(lines, event) {
      tip.replaceChildren(...lines.map((line, i) => html(i ? "div" : "strong", { textContent: line })));
      tip.hidden = false;
      const { left, top } = el.getBoundingClientRect();
      const right = event.clientX - left > el.clientWidth / 2;
      tip.style.left = right ? "" : `${event.clientX - left + 16}px`;
      tip.style.right = right ? `${el.clientWidth - (event.clientX - left) + 16}px` : "";
      tip.style.top = `${Math.max(0, event.clientY - top - 20)}px`;
    },
    hide: () => (tip.hidden = true),
  };
};
const near = (points, x, y, most) => {
  const away = points.map((p) => Math.hypot(p.x - x, p.y - y));
  const best = away.indexOf(Math.min(...away));
  return best >= 0 && away[best] <= most ? points[best] : null;
};

// Hatches, by the names that plotly has for them.
const HATCHES = {
  "/": "M-1,1l2,-2M0,6l6,-6M5,7l2,-2",
  "\\": "M-1,5l2,2M0,0l6,6M5,-1l2,2",
  "|": "M3,0V6",
  "-": "M0,3H6",
  x: "M0,0l6,6M0,6l6,-6",
  ".": "M2,3a1,1 0 1,0 2,0a1,1 0 1,0 -2,0Z",
};
// With an edge, lines of one colour stand out from whatever is below.
const hatched = (id, colour, shape, ink = "#ffffff", edge = null) =>
  svg(
    "pattern",
    { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    svg("rect", { width: 6, height: 6, fill: colour }),
    ...(edge ? [svg("path", { d: HATCHES[shape], stroke: edge, "stroke-width": 3 })] : []),
    ...(HATCHES[shape]
      ? [svg("path", { d: HATCHES[shape], stroke: ink, "stroke-width": 1.2, fill: shape === "." ? ink : "none", "stroke-opacity": 0.75, "fill-opacity": 0.75 })]
      : []),
  );
