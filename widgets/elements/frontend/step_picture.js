// The step drawn: what is in memory when, the ghost of another step behind it, bands of layers below, and a playhead.
const MARGIN = { left: 58, right: 14, top: 26 };
const PLOT = 264; // pixels of height, of this picture and of the curve beside it: one axis for both
const BAND = 18;
const NOW = 34; // of the column of what is in memory at the playhead
const TEXT = 5.9; // pixels of a character, on average
const GRAB = 7;
const STRIP = 5; // pixels of height of what says which pass it is
const THIN = 0.6; // pixels: what is lower than that has no box of its own
const LEAST = 1.2; // pixels of width of a band
const TOGETHER = 10; // of one that stands for several narrower ones

function stepPicture(el, { name, interactive = true }) {
  const id = `se${Math.random().toString(36).slice(2)}`;
  const root = svg("svg", { class: "step", role: "img" });
  const layer = {};
  for (const part of ["grid", "areas", "saved", "ghost", "marks", "bands", "now", "range", "head"]) {
    layer[part] = svg("g", { class: part });
  }
  const defs = svg("defs");
  root.append(defs, ...Object.values(layer));
  el.append(root);
  const paths = new Map();
  let geometry = null;

  const patterns = (palette) =>
    defs.replaceChildren(
      ...palette.map(({ colour, hatch }, i) => hatched(`${id}-${i}`, colour, hatch)),
      hatched(`${id}-saved`, "transparent", "/", "var(--se-good, #00795a)"),
      hatched(`${id}-more`, "transparent", "\\", "#7a2d00", "#ffffff"),
      hatched(`${id}-again`, "#d55e00", "/"),
    );

  // Where everything is, in pixels.
  const measure = (S) => {
    const width = Math.max(160, el.clientWidth || 640);
    const inner = width - MARGIN.left - MARGIN.right - NOW - 12;
    const step = S.preview ?? S.step;
    const ghost = S.ghost?.step;
    const whole = S.byTime ? Math.max(step.time_ms, ghost && !S.preview ? ghost.time_ms : 0) : step.runs;
    const y = (bytes) => MARGIN.top + PLOT * (1 - bytes / S.top);
    const bytes = S.moving ?? S.budget;
    const line = bytes ? y(bytes) : null;
    return { width, inner, step, whole, y, line, ...laidOut(step, { byTime: S.byTime, width: inner, whole }) };
  };
  const xOfRun = (run) => {
    const { step, inner, whole } = geometry;
    return MARGIN.left + (inner * (geometry.byTime ? (run ? step.ends_ms[run - 1] : 0) : run)) / whole;
  };
  const middle = (run) => (xOfRun(run) + xOfRun(run + 1)) / 2;
  const runAt = (px) => {
    const { step, inner, whole } = geometry;
    const at = ((px - MARGIN.left) / inner) * whole;
    if (!geometry.byTime) return Math.max(0, Math.min(step.runs - 1, Math.floor(at)));
    let [low, high] = [0, step.ends_ms.length - 1];
    while (low < high) {
      const half = (low + high) >> 1;
      if (step.ends_ms[half] <= at) low = half + 1;
      else high = half;
    }
    return low;
  };

  const outline = (values) => {
    const { x, shown, y } = geometry;
    let d = "";
    shown.forEach((column, i) => {
      d += `${i ? "V" : `M${(MARGIN.left + x[0]).toFixed(1)},`}${y(values[column]).toFixed(1)}H${(MARGIN.left + x[i + 1]).toFixed(1)}`;
    });
    return d;
  };
  // Between two outlines, where `upper` is above.
  const between = (lower, upper) => {
    const { x, shown, y } = geometry;
    let [d, back] = ["", ""];
    const px = (i) => (MARGIN.left + x[i]).toFixed(1);
    shown.forEach((column, i) => {
      const high = y(Math.max(lower[column], upper[column])).toFixed(1);
      d += `${i ? "V" : `M${px(0)},`}${high}H${px(i + 1)}`;
      back = `V${y(lower[column]).toFixed(1)}H${px(i)}${back}`;
    });
    return `${d}${back}Z`;
  };

  // Names stand where there is room: at the first of some places within the plot at which they touch no other and the
  // budget's line does not strike them through; else nowhere.
  let taken = [];
  const named = (said, { size = 11, kind, places }) => {
    const wide = said.length * size * 0.56;
    const boxOf = ({ x, y, end }) => ({ left: end ? x - wide : x, right: end ? x : x + wide, top: y - size, bottom: y + size * 0.3 });
    const free = places.find((place) => {
      const box = boxOf(place);
      const inside = box.left >= MARGIN.left && box.right <= MARGIN.left + geometry.inner && box.top >= MARGIN.top - 22;
      const struck = geometry.line > box.top && geometry.line < box.bottom;
      return inside && !struck && !taken.some((x) => box.left < x.right + 3 && x.left < box.right + 3 && box.top < x.bottom && x.top < box.bottom);
    });
    if (!free) return [];
    taken.push(boxOf(free));
    return [svg("text", { class: `halo ${kind}`, x: free.x, y: free.y, "text-anchor": free.end ? "end" : "start" }, said)];
  };

  const grid = (S) => {
    const { found, digits } = ticks(0, S.top / UNITS[S.unit], 6);
    const { width, y, inner } = geometry;
    const right = MARGIN.left + inner;
    const parts = found.flatMap((value) => {
      const at = y(value * UNITS[S.unit]);
      return [
        svg("line", { class: value ? "faint" : "axis", x1: MARGIN.left, x2: right, y1: at, y2: at }),
        svg("text", { class: "tick", x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" }, value.toFixed(digits)),
      ];
    });
    parts.push(svg("text", { class: "tick unit", x: MARGIN.left - 6, y: MARGIN.top - 12, "text-anchor": "end" }, S.unit));
    layer.grid.replaceChildren(...parts, ...stages());
    root.setAttribute("width", width);
  };
  // A strip above the plot: which pass it is, and where it computes again.
  const stages = () => {
    const { step, shown, x } = geometry;
    const strip = passesOf(step, geometry);
    const parts = [];
    const top = MARGIN.top - 7;
    let from = 0;
    strip.forEach(({ stage, again }, i) => {
      const next = strip[i + 1];
      if (next && next.stage === stage && next.again === again) return;
      const [a, b] = [MARGIN.left + x[from], MARGIN.left + x[i + 1]];
      const width = Math.max(0.5, b - a);
      from = i + 1;
      if (again < STRIP) parts.push(svg("rect", { class: `stage s${stage}`, x: a, width, y: top, height: STRIP }));
      if (again) parts.push(svg("rect", { class: `stage s${RECOMPUTE}`, x: a, width, y: top + STRIP - again, height: again, fill: `url(#${id}-again)` }));
    });
    const first = step.stages.findIndex((x) => x !== FORWARD);
    const boundary = first < 0 ? geometry.inner : x[Math.max(0, shown.findIndex((column) => column >= first))];
    const note = (text, at) => {
      taken.push({ left: at, right: at + text.length * 5.9, top: MARGIN.top - 23, bottom: MARGIN.top - 9 });
      return svg("text", { class: "note", x: at, y: MARGIN.top - 12 }, text);
    };
    parts.push(note("forward", MARGIN.left + 2));
    if (first >= 0) {
      const room = geometry.inner - boundary;
      parts.push(note(room > 235 ? "backward, with recomputation hatched" : "backward", MARGIN.left + boundary + 2));
      const at = MARGIN.left + boundary;
      parts.push(svg("line", { class: "turn", x1: at, x2: at, y1: MARGIN.top - 7, y2: MARGIN.top + PLOT }));
    }
    return parts;
  };

  const areas = (S) => {
    const { step, shown } = geometry;
    const base = new Float64Array(step.ends.length);
    const used = new Set();
    for (const [key, amounts] of Object.entries(step.bytes)) {
      const top = base.map((x, i) => x + amounts[i]);
      const path = paths.get(key) ?? svg("path", { class: "area", "data-category": S.palette[key].name });
      if (!paths.has(key)) {
        paths.set(key, path);
        layer.areas.append(path);
      }
      path.setAttribute("fill", S.palette[key].hatch ? `url(#${id}-${key})` : S.palette[key].colour);
      path.setAttribute("d", shown.length ? between(base, top) : "");
      used.add(key);
      base.set(top);
    }
    for (const [key, path] of paths) if (!used.has(key)) path.setAttribute("d", "");
    let total = paths.get("total");
    if (!total) {
      total = svg("path", { class: "total" });
      paths.set("total", total);
    }
    layer.areas.append(total);
    used.add("total");
    total.setAttribute("d", outline(step.total));
  };

  const ghost = (S) => {
    const { step, y } = geometry;
    if (!S.ghost) {
      layer.saved.replaceChildren();
      layer.ghost.replaceChildren();
      return;
    }
    const other = S.byTime ? null : alongside(step, S.ghost.step);
    const line = svg("path", { class: "outline", d: S.byTime ? ghostByTime(S) : outline(other) });
    const beside = other ?? meanwhile(step, S.ghost.step);
    const parts = [svg("path", { class: "less", d: between(step.total, beside), fill: `url(#${id}-saved)` })];
    if (S.ghost.held) parts.push(svg("path", { class: "more", d: between(beside, step.total), fill: `url(#${id}-more)` }));
    layer.saved.replaceChildren(...parts);
    layer.ghost.replaceChildren(line, ...difference(S, other, y));
  };
  // The other step at its own pace: where it ends earlier, the rest is the price.
  const ghostByTime = (S) => {
    const { step } = S.ghost;
    const { x, shown } = laidOut(step, { byTime: true, width: geometry.inner, whole: geometry.whole });
    let d = "";
    shown.forEach((column, i) => {
      d += `${i ? "V" : `M${MARGIN.left},`}${geometry.y(step.total[column]).toFixed(1)}H${(MARGIN.left + x[i + 1]).toFixed(1)}`;
    });
    return `${d}V${geometry.y(0)}`;
  };
  // An arrow from the ghost's peak to this step's.
  const difference = (S, other, y) => {
    const { step, inner } = geometry;
    const from = S.ghost.step.peak[1];
    const to = step.peak[1];
    let at = MARGIN.left + inner / 2;
    if (other) {
      const column = other.indexOf(Math.max(...other));
      at = S.preview && step.ends.length !== step.runs ? MARGIN.left + (inner * step.ends[column]) / step.runs : middle(Math.min(column, step.runs - 1));
    } else {
      const { step: plain } = S.ghost;
      at = MARGIN.left + (inner * plain.ends_ms[plain.total.indexOf(Math.max(...plain.total))]) / geometry.whole;
    }
    const beside = (height) => [{ x: at + 8, y: height }, { x: at - 8, y: height, end: true }];
    const parts = named(`${S.ghost.label} ${amount(from, S.unit)}`, { kind: "name", places: [...beside(y(from) - 5), ...beside(y(from) + 12)] });
    if (Math.abs(from - to) * PLOT > S.top * 16) {
      const [a, b] = [y(from) + 3, y(to) - 3];
      const tip = b > a ? 5 : -5;
      parts.push(svg("path", { class: to < from ? "arrow" : "arrow worse", d: `M${at},${a}V${b}M${at - 4},${b - tip}l4,${tip}l4,${-tip}` }));
      const share = signed((100 * (to - from)) / from, 0);
      const said = `${share} % · ${to < from ? "−" : "+"}${amount(Math.abs(from - to), S.unit)}`;
      parts.push(...named(said, { size: 14, kind: to < from ? "saving" : "saving worse", places: [(a + b) / 2 + 5, b - 6, a + 14, b + 20, b + 36].flatMap(beside) }));
    }
    if (!other) {
      const extra = (step.time_ms / S.ghost.step.time_ms - 1) * 100;
      const end = MARGIN.left + (inner * S.ghost.step.time_ms) / geometry.whole;
      const stop = MARGIN.left + (inner * step.time_ms) / geometry.whole;
      if (Math.abs(stop - end) > 2) parts.push(svg("path", { class: extra > 0 ? "arrow worse" : "arrow", d: `M${end},${y(0) - 8}H${stop}m-4,-4l4,4l-4,4` }));
      const places = [4, 20, 36, 52].map((up) => ({ x: Math.min(end, stop) - 6, y: y(0) - up, end: true }));
      parts.push(...named(`${signed(extra, 1)} % time`, { size: 14, kind: extra > 0 ? "saving worse" : "saving", places }));
    }
    return parts;
  };

  const marks = (S) => {
    const { step, y, inner } = geometry;
    const right = MARGIN.left + inner;
    const parts = [];
    if (S.measured && !S.preview) {
      const at = (run) => (S.byTime ? xOfRun(Math.floor(run)) + (run % 1) * (xOfRun(Math.min(step.runs, Math.floor(run) + 1)) - xOfRun(Math.floor(run))) : MARGIN.left + (inner * run) / step.runs);
      const d = Array.from(S.measured.runs, (run, i) => `${i ? "H" : "M"}${at(run).toFixed(1)}${i ? "V" : ","}${y(S.measured.bytes[i]).toFixed(1)}`).join("");
      parts.push(svg("path", { class: "measured", d }));
    }
    const bytes = S.moving ?? S.budget;
    if (bytes) {
      const at = geometry.line;
      parts.push(svg("line", { class: "budget", x1: MARGIN.left, x2: right, y1: at, y2: at }));
      if (interactive) parts.push(svg("path", { class: "grip", d: `M${right - 1},${at}l9,-6v12Z` }), svg("line", { class: "catch", x1: MARGIN.left, x2: right + 8, y1: at, y2: at }));
      const heights = at < MARGIN.top + 14 ? [at + 13] : [at - 5, at + 13];
      const places = heights.flatMap((height) => [{ x: MARGIN.left + 4, y: height }, { x: right - 4, y: height, end: true }]);
      parts.push(...named(`budget ${amount(bytes, S.unit)}`, { kind: "limit", places }));
    }
    if (!S.preview) {
      const [run, peak] = step.peak;
      const at = middle(run);
      parts.push(svg("path", { class: "peak", d: `M${at},${y(peak) - 6}l6,6l-6,6l-6,-6Z` }));
      const heights = [y(peak) + 15, y(peak) - 6, y(peak) + 30, y(peak) - 20];
      const places = heights.flatMap((height) => [{ x: at + 10, y: height }, { x: at - 10, y: height, end: true }]);
      parts.push(...named(`peak ${amount(peak, S.unit)}`, { kind: "name", places }));
    }
    layer.marks.replaceChildren(...parts);
  };

  // Rows of bands: the outermost layers, and below each that is open its parts.
  const bands = (S) => {
    if (S.preview) return layer.bands.classList.add("stale");
    layer.bands.classList.remove("stale");
    const { step } = geometry;
    const top = MARGIN.top + PLOT + 7;
    const parts = [];
    let row = 0;
    for (; row < 8; row += 1) {
      const single = bandsOf(step, S.layers, S.model, { level: row, open: S.open });
      if (!single.length) break;
      const found = seen(folded(single, S.model, (start, end) => (xOfRun(end) - xOfRun(start)) / TEXT));
      const names = namesOf(found, S.model);
      for (const band of found) {
        const [a, b] = [xOfRun(band.start), xOfRun(band.end)];
        if (band.several) {
          const said = `${band.several} layers, ${S.model.labels[band.label]} to ${S.model.labels[band.last]}`;
          const box = svg("rect", { x: a + 0.5, y: top + row * BAND, width: Math.max(0.7, b - a - 1), height: BAND - 2, rx: 2, class: "band several" });
          parts.push(svg("g", {}, svg("title", {}, said), box));
          continue;
        }
        const full = band.told ?? S.model.labels[band.label];
        const whole = band.parent || full;
        const chosen = S.selection && (whole === S.selection || whole.startsWith(`${S.selection}.`) || S.selection.startsWith(`${whole}.`));
        const open = S.open.has(band.label);
        const box = svg("rect", { x: a + 0.5, y: top + row * BAND, width: Math.max(0.7, b - a - 1), height: BAND - 2, rx: 2, class: `band${chosen ? " chosen" : ""}${open ? " open" : ""}` });
        const said = names.get(full).length <= roomIn(band) ? names.get(full) : "";
        const group = svg("g", { "data-band": band.label, "data-layer": band.parent || S.model.picks[band.label], ...(band.more && { "data-more": "" }) }, svg("title", {}, `${full}${band.more ? (open ? ": close" : ": open") : ""}`), box);
        if (said) group.append(svg("text", { x: (a + b) / 2, y: top + row * BAND + 12, "text-anchor": "middle" }, said));
        parts.push(group);
      }
    }
    if (S.selection) parts.push(...selected(S));
    layer.bands.replaceChildren(...parts);
    const height = top + Math.max(1, row) * BAND + 4;
    root.setAttribute("height", height);
    geometry.height = height;
  };
  const roomIn = ({ start, end }) => Math.floor((xOfRun(end) - xOfRun(start) - 3) / TEXT);
  // A layer has one name in both passes: the one that the narrower of its bands has room for, of those with room for any.
  const namesOf = (found, model) => {
    const names = new Map();
    for (const band of found) {
      const full = band.told ?? model.labels[band.label];
      const [before, said] = [names.get(full), shortened(full, roomIn(band))];
      if (!before || (said && said.length < before.length)) names.set(full, said);
    }
    return names;
  };
  // Neighbours that are too narrow stand together, as many as can be seen.
  const seen = (found) => {
    const wide = [];
    for (const band of found) {
      const last = wide[wide.length - 1];
      const narrow = xOfRun(band.end) - xOfRun(band.start) < LEAST;
      const joins = narrow && last?.several && last.end === band.start && last.back === band.back && xOfRun(last.end) - xOfRun(last.start) < TOGETHER;
      if (joins) Object.assign(last, { end: band.end, last: band.label, several: last.several + 1 });
      else wide.push(narrow ? { ...band, last: band.label, several: 1 } : band);
    }
    return wide.filter((x) => xOfRun(x.end) - xOfRun(x.start) >= LEAST);
  };
  // Where the selected layer runs, however little of the step that is.
  const selected = (S) => {
    const inside = S.model.layers.map((x) => x === S.selection || x.startsWith(`${S.selection}.`));
    const { step } = geometry;
    const parts = [];
    for (let run = 0; run < step.runs; run += 1) {
      if (!inside[S.model.layer_of[step.operators[run]]]) continue;
      const from = run;
      while (run + 1 < step.runs && inside[S.model.layer_of[step.operators[run + 1]]]) run += 1;
      const [a, b] = [xOfRun(from), xOfRun(run + 1)];
      parts.push(svg("rect", { class: "run", x: a, width: Math.max(2, b - a), y: MARGIN.top + PLOT, height: 5 }));
    }
    return parts;
  };
  // The end of a path that fits; a number never stands without the name before it.
  const shortened = (path, most) => {
    const parts = path.split(".");
    let kept = parts.length;
    while (kept > 1 && parts.slice(-kept).join(".").length > most) kept -= 1;
    while (kept < parts.length && /^\d/.test(parts[parts.length - kept])) kept += 1;
    const end = parts.slice(-kept).join(".");
    return end.length <= most ? end : "";
  };

  // The tensors in memory at a run, one by one, on the same axis.
  const now = (S) => {
    const { step, y, inner } = geometry;
    const left = MARGIN.left + inner + 14;
    if (S.preview || !S.step.stays) return layer.now.replaceChildren();
    const run = S.run ?? step.peak[0];
    const parts = [];
    const stays = [];
    step.stays[0].forEach((_, i) => {
      const found = stay(step, i);
      if (found.start <= run && run <= found.end) stays.push(sized(S.model, found));
    });
    let at = 0;
    for (const [key, amounts] of Object.entries(step.bytes)) {
      const inside = stays.filter((x) => String(x.category) === key).sort((a, b) => a.start - b.start);
      const rest = amounts[run] - inside.reduce((sum, x) => sum + x.bytes, 0);
      const blocks = [...(rest > 0 ? [{ name: S.palette[key].name, bytes: rest }] : []), ...together(inside, S)];
      for (const block of blocks) {
        const [low, high] = [y(at), y(at + block.bytes)];
        at += block.bytes;
        const fresh = S.run !== null && block.start === run;
        const fill = S.palette[key].hatch ? `url(#${id}-${key})` : S.palette[key].colour;
        parts.push(svg("rect", { class: `block${fresh ? " fresh" : ""}${block.end === run ? " last" : ""}`, x: left, width: NOW, y: high, height: Math.max(0.3, low - high), fill }, svg("title", {}, `${block.name}, ${told(block.bytes)}`)));
      }
    }
    parts.push(svg("text", { class: "note", x: left + NOW / 2, y: MARGIN.top - 12, "text-anchor": "middle" }, S.run === null ? "at peak" : "now"));
    layer.now.replaceChildren(...parts);
  };

  // Those too low to be seen are one box, below the others.
  const together = (blocks, S) => {
    const low = blocks.filter((x) => x.bytes * PLOT < THIN * S.top);
    if (low.length < 2) return blocks;
    const bytes = low.reduce((sum, x) => sum + x.bytes, 0);
    return [{ name: `${low.length} tensors`, bytes }, ...blocks.filter((x) => !low.includes(x))];
  };

  const head = (S) => {
    const { y, step } = geometry;
    const range = S.range && !S.preview ? [xOfRun(S.range[0]), xOfRun(S.range[1] + 1)] : null;
    layer.range.replaceChildren(...(range ? [svg("rect", { class: "chosen-range", x: range[0], width: Math.max(1, range[1] - range[0]), y: MARGIN.top, height: PLOT })] : []));
    if (S.run === null || S.preview) return layer.head.replaceChildren();
    const at = middle(S.run);
    layer.head.replaceChildren(
      svg("line", { class: "playhead", x1: at, x2: at, y1: MARGIN.top - 8, y2: MARGIN.top + PLOT + 4 }),
      svg("path", { class: "knob", d: `M${at - 6},${MARGIN.top - 16}h12v6l-6,6l-6,-6Z` }),
      svg("circle", { class: "spot", cx: at, cy: y(step.total[S.run]), r: 4.5 }),
    );
  };

  return {
    root,
    get geometry() {
      return geometry;
    },
    runAt,
    middle,
    draw(S) {
      if (!S.step) return;
      if (!defs.childNodes.length) patterns(S.palette);
      geometry = { ...measure(S), byTime: S.byTime };
      taken = [];
      grid(S);
      areas(S);
      marks(S);
      ghost(S);
      bands(S);
      now(S);
      head(S);
      root.setAttribute("aria-label", name(S));
      root.dataset.runs = geometry.step.runs;
    },
    // What is too thin to be seen is drawn but not listed.
    legend(S) {
      const entry = (name, ...drawn) => html("span", {}, svg("svg", { width: 16, height: 11, "aria-hidden": "true" }, ...drawn), name);
      const box = (fill, more = {}) => svg("rect", { width: 16, height: 11, fill, ...more });
      const thick = Object.entries(S.step.bytes).filter(([, amounts]) => amounts.some((x) => x > S.top / 200));
      const found = thick.map(([key]) => entry(S.palette[key].name, box(S.palette[key].hatch ? `url(#${id}-${key})` : S.palette[key].colour)));
      if (S.ghost) found.push(entry(`saved against ${S.ghost.held ? "the reference" : S.ghost.label}`, box(`url(#${id}-saved)`, { stroke: "#00795a", "stroke-width": 0.6 })));
      if (S.ghost?.held) found.push(entry("more than the reference", box(`url(#${id}-more)`, { stroke: "#7a2d00", "stroke-width": 0.6 })));
      if (S.measured) found.push(entry("measured", svg("path", { d: "M0,6H16", stroke: "#007a57", "stroke-width": 2.5 })));
      return found;
    },
    // What changes as the playhead moves.
    walk(S) {
      if (!geometry) return;
      now(S);
      head(S);
    },
    // What is below a pointer.
    at(event, S) {
      const box = root.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      const inside = x >= MARGIN.left && x <= MARGIN.left + geometry.inner + 10 && y >= MARGIN.top - 18 && y <= MARGIN.top + PLOT;
      const bytes = S.top * (1 - (y - MARGIN.top) / PLOT);
      const budget = S.budget ? Math.abs(y - geometry.y(S.budget)) <= GRAB : false;
      const knob = S.run !== null && Math.abs(x - middle(S.run)) <= GRAB && y <= MARGIN.top + 4;
      return { x, y, inside, bytes, run: runAt(x), budget, knob };
    },
  };
}
