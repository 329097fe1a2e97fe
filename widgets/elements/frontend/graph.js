// Modules as boxes in the order in which they run, line by line, each with a bar of what becomes of its tensors.
const WIDE = 128, HIGH = 50, GAP = 30, ROW = 96, EDGE = 14;
const TEXT = 6.1;

function render({ model, el }) {
  el.classList.add("schedule-explorer-graph");
  const root = svg("svg", { class: "modules", role: "group" });
  const legend = html("div", { className: "schedule-explorer-legend" });
  el.append(root, legend);
  const tip = tipIn(el);
  const id = `se${Math.random().toString(36).slice(2)}`;
  const open = new Set();
  let G = null;

  // The box that a layer is in: the outermost of its names that is not open.
  const nodeOf = (layer) => {
    const chain = G.model.chains[layer];
    return chain.find((x) => !open.has(x)) ?? chain[chain.length - 1] ?? -1;
  };
  const gather = () => {
    const nodes = new Map();
    for (const layer of G.order) {
      const label = nodeOf(layer);
      if (!nodes.has(label)) nodes.set(label, { label, layers: [], bytes: G.bytes.map(() => 0), more: false, above: null });
      const node = nodes.get(label);
      const chain = G.model.chains[layer];
      node.layers.push(layer);
      G.bytes.forEach((amounts, i) => (node.bytes[i] += amounts[layer]));
      node.more ||= chain.indexOf(label) < chain.length - 1;
      node.above = chain[chain.indexOf(label) - 1] ?? null;
    }
    const edges = new Map();
    for (const [from, to, bytes] of G.edges) {
      const [a, b] = [nodeOf(from), nodeOf(to)];
      if (a !== b && nodes.has(a) && nodes.has(b)) edges.set(`${a} ${b}`, { a, b, bytes: (edges.get(`${a} ${b}`)?.bytes ?? 0) + bytes });
    }
    return { nodes: [...nodes.values()], edges: [...edges.values()] };
  };
  const nameOf = ({ label }) => (label < 0 ? "other" : G.model.labels[label]);
  const shortened = (path, most) => {
    const parts = path.split(".");
    let kept = parts.length;
    while (kept > 1 && parts.slice(-kept).join(".").length > most) kept -= 1;
    while (kept < parts.length && /^\d/.test(parts[parts.length - kept])) kept += 1;
    const end = parts.slice(-kept).join(".");
    return end.length <= most ? end : `${end.slice(0, most - 1)}…`;
  };

  const box = (node, most) => {
    const { x, y } = node;
    const whole = node.bytes.reduce((a, b) => a + b, 0);
    const name = nameOf(node);
    const chosen = model.get("selection");
    const marked = chosen && (name === chosen || name.startsWith(`${chosen}.`) || chosen.startsWith(`${name}.`));
    const group = svg("g", { class: `module${marked ? " chosen" : ""}`, tabindex: -1, role: "button", "data-layer": node.label < 0 ? name : G.model.picks[node.label] });
    group.setAttribute("aria-label", `${name}: ${told(whole)}${node.more ? ", opens" : ""}`);
    if (node.more) group.dataset.more = node.label;
    if (node.above !== null) group.dataset.above = node.above;
    group.append(svg("rect", { class: "frame", x, y, width: WIDE, height: HIGH, rx: 5 }));
    group.append(svg("text", { x: x + 8, y: y + 16 }, shortened(name, Math.floor((WIDE - (node.more ? 26 : 14)) / TEXT))));
    if (node.more) group.append(svg("text", { class: "more", x: x + WIDE - 14, y: y + 16 }, "+"));
    group.append(svg("text", { class: "tick", x: x + 8, y: y + 45 }, whole ? told(whole) : "nothing"));
    let at = x + 8;
    node.bytes.forEach((bytes, i) => {
      const wide = ((WIDE - 16) * bytes) / most;
      if (wide < 0.3) return;
      group.append(svg("rect", { class: "fate", "data-fate": G.fates[i].name, x: at, y: y + 23, width: wide, height: 9, fill: fill(i) }));
      at += wide;
    });
    group.dataset.said = [name, ...node.bytes.flatMap((bytes, i) => (bytes ? [`${G.fates[i].name}: ${told(bytes)}`] : [])), ...(node.more ? ["click to open"] : [])].join("\n");
    return group;
  };
  const fill = (i) => (G.fates[i].hatch ? `url(#${id}-${i})` : G.fates[i].colour);
  // Beside each other: an arrow; within a line: over the boxes in between; else around them.
  const arrow = ({ from, to, thick }) => {
    const [a, b] = [from, to];
    const mid = HIGH / 2;
    let d;
    if (b.place === a.place + 1 && a.row === b.row) d = `M${a.x + WIDE},${a.y + mid}H${b.x - 4}`;
    else if (a.row === b.row) {
      const lift = Math.min(30, 9 + 3 * Math.abs(b.place - a.place));
      d = `M${a.x + WIDE - 20},${a.y}c0,${-lift} ${b.x + 20 - a.x - WIDE + 20},${-lift} ${b.x - a.x - WIDE + 40},-3`;
    } else {
      const [x1, y1, x2, y2] = [a.x + WIDE / 2, a.y + HIGH, b.x + WIDE / 2, b.y - 4];
      const down = (ROW - HIGH) / 2;
      d = b.row > a.row ? `M${x1},${y1}C${x1},${y1 + down} ${x2},${y2 - down} ${x2},${y2}` : `M${x1},${a.y}C${x1},${a.y - down} ${x2},${b.y + HIGH + down} ${x2},${b.y + HIGH + 4}`;
    }
    return svg("path", { class: b.place === a.place + 1 ? "flow" : "flow skip", d, "stroke-width": thick, "marker-end": `url(#${id}-tip)` });
  };

  const draw = () => {
    G = table(model.get("graph"));
    root.style.display = legend.style.display = G ? "" : "none";
    if (!G || !el.clientWidth) return;
    const { nodes, edges } = gather();
    const each = Math.max(1, Math.floor((el.clientWidth - 2 * EDGE + GAP) / (WIDE + GAP)));
    nodes.forEach((node, place) => Object.assign(node, { place, row: Math.floor(place / each), x: EDGE + (place % each) * (WIDE + GAP), y: 34 + Math.floor(place / each) * ROW }));
    const of = new Map(nodes.map((node) => [node.label, node]));
    const most = Math.max(...nodes.map((node) => node.bytes.reduce((a, b) => a + b, 0)), 1);
    const widest = Math.max(...edges.map((x) => x.bytes), 1);
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.layer : null;
    root.setAttribute("width", el.clientWidth);
    root.setAttribute("height", 34 + (nodes.at(-1).row + 1) * ROW - (ROW - HIGH) + 12);
    root.setAttribute("aria-label", `The step as ${nodes.length} modules`);
    root.replaceChildren(
      svg("defs", {}, svg("marker", { id: `${id}-tip`, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { class: "tip", d: "M0,0.5L8,4L0,7.5Z" })), ...G.fates.map(({ colour, hatch }, i) => hatched(`${id}-${i}`, colour, hatch))),
      ...edges.map(({ a, b, bytes }) => arrow({ from: of.get(a), to: of.get(b), thick: 1 + 2.5 * Math.sqrt(bytes / widest) })),
      ...nodes.map((node) => box(node, most)),
    );
    const stops = [...root.querySelectorAll(".module")];
    (stops.find((x) => x.dataset.layer === focused) ?? stops[0]).setAttribute("tabindex", "0");
    if (focused !== null) root.querySelector("[tabindex='0']").focus({ preventScroll: true });
    legend.replaceChildren(
      ...G.fates.map(({ name }, i) => html("span", {}, svg("svg", { width: 16, height: 11, "aria-hidden": "true" }, svg("rect", { width: 16, height: 11, fill: fill(i) })), name)),
      ...(open.size ? [closing()] : []),
    );
    el.dataset.drawn = String(Number(el.dataset.drawn ?? 0) + 1);
  };
  const closing = () => {
    const button = html("button", { type: "button", textContent: "Close all modules" });
    button.addEventListener("click", () => (open.clear(), draw()));
    return button;
  };
  const choose = (module) => {
    if (module.dataset.more !== undefined) {
      open.add(Number(module.dataset.more));
      draw();
    }
    if (module.dataset.layer) model.send({ picked: module.dataset.layer });
  };
  root.addEventListener("click", ({ target }) => {
    const module = target.closest(".module");
    if (module) choose(module);
  });
  root.addEventListener("keydown", (event) => {
    const stops = [...root.querySelectorAll(".module")];
    const at = stops.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (at < 0) return;
    if (step) {
      const next = stops[Math.max(0, Math.min(stops.length - 1, at + step))];
      stops[at].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") choose(stops[at]);
    else if (event.key === "Escape" && stops[at].dataset.above !== undefined) (open.delete(Number(stops[at].dataset.above)), draw());
    else return;
    event.preventDefault();
  });
  root.addEventListener("pointermove", (event) => {
    const module = event.target.closest(".module");
    if (module) tip.show(module.dataset.said.split("\n"), event);
    else tip.hide();
  });
  root.addEventListener("pointerleave", tip.hide);
  const sized = new ResizeObserver(draw);
  sized.observe(el);
  model.on("change", draw);
  return () => {
    sized.disconnect();
    model.off("change", draw);
  };
}

export default { initialize: keepListening, render };
