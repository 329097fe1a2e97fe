// What each budget costs: memory upwards, on the axis of the timeline beside it, extra time to the right.
const LEFT = 46, RIGHT = 16, TOP = 26;
const HEIGHT = 264;
const BELOW = 40;
const REACH = 12; // pixels around a point
const HALF = 4; // of the width of a tick's character, at most: "%" is wide
const EMPTY = "no schedule is known to fit here";
const STEP = { ArrowUp: 1, ArrowRight: -1, ArrowDown: -1, ArrowLeft: 1 };

function render({ model, el }) {
  el.classList.add("schedule-explorer-trade_off");
  const root = svg("svg", { class: "curve", role: "group" });
  el.append(root);
  const tip = tipIn(el);
  const id = `se${Math.random().toString(36).slice(2)}`;
  let [S, preview, scale] = [null, null, null];

  const measure = () => {
    const width = Math.max(160, el.clientWidth || 360);
    const inner = width - LEFT - RIGHT;
    const y = (bytes) => TOP + HEIGHT * (1 - bytes / S.top);
    const x = (share) => LEFT + ((share - S.low) / (S.high - S.low)) * inner;
    return { width, inner, x, y, right: LEFT + inner, bottom: TOP + HEIGHT };
  };
  // From the most memory down: a budget between two peaks gets the schedule of the lower one.
  const path = (points) => {
    const { x, y } = scale;
    return points.map(([peak, share], i) => (i ? `V${y(peak).toFixed(1)}H${x(share).toFixed(1)}` : `M${x(share).toFixed(1)},${y(peak).toFixed(1)}`)).join("");
  };
  const symbols = {
    circle: (x, y) => svg("circle", { cx: x, cy: y, r: 3.2 }),
    ring: (x, y) => svg("circle", { cx: x, cy: y, r: 4, class: "ring" }),
    square: (x, y) => svg("rect", { x: x - 5, y: y - 5, width: 10, height: 10 }),
    triangle: (x, y) => svg("path", { d: `M${x},${y - 6}l6,10h-12Z` }),
    diamond: (x, y) => svg("path", { d: `M${x},${y - 8}l8,8l-8,8l-8,-8Z` }),
    cross: (x, y) => svg("path", { d: `M${x - 3},${y - 3}l6,6m0,-6l-6,6`, class: "ring" }),
  };
  const frame = () => {
    const { x, y, right, bottom } = scale;
    const up = ticks(0, S.top / UNITS[S.unit], 6);
    const across = ticks(S.low, S.high, Math.max(2, scale.inner / 70));
    return [
      ...up.found.flatMap((value) => {
        const at = y(value * UNITS[S.unit]);
        return [
          svg("line", { class: value ? "faint" : "axis", x1: LEFT, x2: right, y1: at, y2: at }),
          svg("text", { class: "tick", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, value.toFixed(up.digits)),
        ];
      }),
      ...across.found.flatMap((value) => {
        const said = `${value > 0 ? "+" : ""}${value.toFixed(across.digits).replace("-", "−")} %`;
        const inside = Math.min(x(value), scale.width - HALF * said.length);
        return [
          svg("line", { class: "faint", x1: x(value), x2: x(value), y1: TOP, y2: bottom }),
          svg("text", { class: "tick", x: inside, y: bottom + 15, "text-anchor": "middle" }, said),
        ];
      }),
      svg("text", { class: "tick unit", x: LEFT - 6, y: TOP - 12, "text-anchor": "end" }, S.unit),
      svg("text", { class: "note", x: LEFT + 2, y: TOP - 12 }, "what each budget costs"),
      svg("text", { class: "note", x: (LEFT + right) / 2, y: bottom + 32, "text-anchor": "middle" }, "extra time of a step"),
    ];
  };
  // Would the budget's line strike through what is written at this height?
  const struck = (at) => Boolean(S.budget) && Math.abs(at - 4 - scale.y(S.budget)) < 9;
  const emptyAt = () => {
    if (!S.smallest) return undefined;
    const { y, bottom } = scale;
    return [bottom - 5, bottom - 23].find((at) => at - 11 > y(S.smallest) && !struck(at));
  };
  const nothing = () => {
    if (!S.smallest) return [];
    const { y, bottom, right } = scale;
    const [top, at] = [y(S.smallest), emptyAt()];
    const said = at ? [svg("text", { class: "note", x: LEFT + 6, y: at }, EMPTY)] : [];
    return [svg("rect", { class: "nothing", x: LEFT, y: top, width: right - LEFT, height: Math.max(0, bottom - top) }), ...said];
  };
  const line = ({ name, colour, dash, points, width, symbol, picks }) => {
    if (!points.length) return [];
    const group = svg("g", { class: "series", "data-name": name, stroke: colour, fill: colour, "clip-path": `url(#${id})` });
    if (width) group.append(svg("path", { class: "line", d: path(points), "stroke-dasharray": dash, "stroke-width": width }));
    const point = ([peak, share, budget, time], mark, more = "") => {
      if (picks) Object.assign(mark.dataset, { budget });
      mark.setAttribute("aria-label", `${name}${more}: ${amount(peak, S.unit)}, ${signed(share, 1)} % time`);
      mark.dataset.said = [`${name}${more}`, `${amount(peak, S.unit)} at the peak`, `${milliseconds(time)} a step, ${signed(share, 1)} %`].join("\n");
      return mark;
    };
    const inside = points.filter(([, share]) => share <= S.high);
    group.append(...inside.map((x) => point(x, symbols[symbol](scale.x(x[1]), scale.y(x[0])))));
    if (inside.length === points.length) return [group];
    // Of those beyond the axis the last stands for all: an arrow where the line leaves it.
    const { right } = scale;
    const arrow = svg("path", { d: `M${right},${leaves(points) - 5}l9,5l-9,5Z` });
    return [group, svg("g", { class: "beyond", fill: colour }, point(points[0], arrow, ", beyond this axis"))];
  };
  // How high a line is where it leaves the axis of extra time; the smallest peak comes first.
  const leaves = (points) => scale.y((points.find(([, share]) => share <= S.high) ?? points.at(-1))[0]);
  // What is said of that, where there is room: how far it goes.
  const beyond = () => {
    const { right, bottom } = scale;
    const found = S.series.find(({ points, picks }) => picks && points[0]?.[1] > S.high);
    if (!found) return null;
    const [peak, share] = found.points[0];
    const said = `to ${amount(peak, S.unit)}, ${signed(share, 0)} %`;
    const at = [16, 31, -7, -22].map((down) => leaves(found.points) + down).find((y) => !struck(y) && y < bottom - 3);
    const wide = said.length * 6.2;
    return at === undefined ? null : { x: right - wide, y: at, wide, said };
  };
  // Each line is named where it has the most room; the names do not touch.
  const names = () => {
    const { x, y, right, bottom } = scale;
    const far = beyond();
    const taken = [emptyAt() && { x: LEFT, y: emptyAt(), wide: 190 }, far].filter(Boolean);
    // A point alone has few places for its name, so it comes first.
    const inTurn = [...S.series].sort((a, b) => Boolean(a.width) - Boolean(b.width));
    const said = far ? [svg("text", { class: "halo note", x: right, y: far.y, "text-anchor": "end" }, far.said)] : [];
    const others = inTurn.flatMap(({ name, colour, dash, points, named, width }) => {
      if (!named || !points.length) return [];
      const swatch = width ? 20 : 0;
      const wide = name.length * 6.2 + swatch;
      const own = points.filter(([, share]) => share <= S.high).map(([peak, share]) => ({ x: x(share) + 8, y: y(peak) - 6 }));
      const corner = Array.from({ length: 8 }, (_, i) => ({ x: right - wide, y: TOP + 12 + 15 * i }));
      const edge = Array.from({ length: 14 }, (_, i) => ({ x: LEFT + 10, y: TOP + 12 + 15 * i }));
      const inside = (p) => p.x > LEFT && p.x + wide <= right + 2 && p.y > TOP + 8 && p.y < bottom - 2;
      const apart = (p) => inside(p) && !struck(p.y) && !taken.some((t) => Math.abs(t.y - p.y) < 15 && p.x < t.x + t.wide + 3 && t.x < p.x + wide + 3);
      // A point alone has its name beside it; a line's says by its dashes whose it is.
      const beside = own.flatMap((p) => [p, { x: p.x + 2, y: p.y + 10 }, { x: p.x - wide - 16, y: p.y }, { x: p.x, y: p.y + 23 }, { x: p.x, y: p.y + 38 }]);
      const place = width
        ? own.find((p) => apart(p) && clear(p, wide)) ?? [...corner, ...edge].find((p) => apart(p) && clear(p, wide)) ?? corner.find(apart)
        : beside.find((p) => apart(p) && clear(p, wide)) ?? beside.find(apart);
      if (!place) return [];
      taken.push({ ...place, wide });
      return [
        ...(swatch ? [svg("path", { class: "swatch", d: `M${place.x},${place.y - 4}h16`, stroke: colour, "stroke-width": width + 0.5, "stroke-dasharray": dash ?? "" })] : []),
        svg("text", { class: "halo name", x: place.x + swatch, y: place.y }, name),
      ];
    });
    return [...said, ...others];
  };
  // Does no line run through a name there? Each goes up from a point, then to the left as far as the next.
  const clear = (place, wide) => {
    const [left, right, top, bottom] = [place.x - 2, place.x + wide, place.y - 12, place.y + 3];
    const meets = ([peak, share], [next, further]) => {
      const [x1, x2, y1, y2] = [scale.x(further), scale.x(share), scale.y(next), scale.y(peak)];
      const upwards = x2 > left && x2 < right && y2 > top && y1 < bottom;
      return upwards || (y1 > top && y1 < bottom && x2 > left && x1 < right);
    };
    return S.series.every(({ points, width }) => !width || !points.some((x, i) => meets(x, points[i + 1] ?? x)));
  };
  const budgetLine = () => {
    const bytes = preview?.bytes ?? S.budget;
    if (!bytes) return [];
    const at = scale.y(bytes);
    return [
      svg("line", { class: "budget", x1: LEFT, x2: scale.right, y1: at, y2: at }),
      svg("line", { class: "catch", x1: LEFT - 14, x2: scale.right, y1: at, y2: at }),
    ];
  };
  const diamond = () => {
    const found = preview?.bytes ? preview.point && [preview.point.peak, preview.point.share] : S.current;
    if (!found) return [];
    const [peak, share] = found;
    const inside = Math.min(share, S.high);
    const mark = symbols.diamond(scale.x(inside), scale.y(peak));
    mark.setAttribute("class", `diamond${preview?.bytes ? " known" : ""}`);
    mark.dataset.said = `this schedule\n${amount(peak, S.unit)} at the peak\n${signed(share, 1)} % time\ndrag it up or down`;
    return [mark];
  };

  // What a hand moves is all that is drawn anew while it does.
  const [moving, above] = [svg("g"), svg("g")];
  const move = () => {
    moving.replaceChildren(...budgetLine());
    above.replaceChildren(...diamond());
    el.dataset.drawn = String(Number(el.dataset.drawn ?? 0) + 1);
  };
  const draw = () => {
    S = table(model.get("known"));
    if (!S || !el.clientWidth) return;
    scale = measure();
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.budget : null;
    root.setAttribute("width", scale.width);
    root.setAttribute("height", TOP + HEIGHT + BELOW);
    root.setAttribute("aria-label", "Extra time against memory: each point is a schedule");
    root.replaceChildren(
      svg("clipPath", { id }, svg("rect", { x: LEFT - 8, y: TOP - 10, width: scale.inner + 16, height: HEIGHT + 16 })),
      ...frame(),
      ...nothing(),
      moving,
      ...S.series.flatMap(line),
      ...names(),
      above,
    );
    move();
    const points = stops();
    points.forEach((x) => (x.setAttribute("role", "button"), (x.tabIndex = -1)));
    const here = points.find((x) => x.dataset.budget === focused) ?? points.find((x) => Number(x.dataset.budget) <= (S.budget ?? Infinity)) ?? points.at(-1);
    if (here) here.tabIndex = 0;
    if (focused !== null) here?.focus({ preventScroll: true });
  };
  // By keyboard the points are one stop, at first that of the schedule shown; arrows lead from one to the next.
  const stops = () => [...root.querySelectorAll("[data-budget]")].sort((a, b) => b.dataset.budget - a.dataset.budget);
  const press = (event) => {
    const points = stops();
    const at = points.indexOf(document.activeElement);
    if (at < 0) return;
    if (event.key === "Enter" || event.key === " ") model.send({ budget: Number(points[at].dataset.budget) });
    else if (STEP[event.key]) {
      const next = points[Math.max(0, Math.min(points.length - 1, at - STEP[event.key]))];
      points[at].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      const box = next.getBoundingClientRect();
      tip.show(next.dataset.said.split("\n"), { clientX: box.right, clientY: box.bottom });
    } else return;
    event.preventDefault();
  };
  const where = (event) => {
    const box = root.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const marks = [...root.querySelectorAll("[data-said]")].map((mark) => {
      const own = mark.getBoundingClientRect();
      return { mark, x: own.left + own.width / 2 - box.left, y: own.top + own.height / 2 - box.top };
    });
    const found = near(marks, x, y, REACH);
    const onLine = S.budget && Math.abs(y - scale.y(S.budget)) < 7 && x > LEFT - 16;
    return { x, y, bytes: S.top * (1 - (y - TOP) / HEIGHT), found: found?.mark, onLine };
  };
  const grab = (event) => {
    if (!S || event.button) return;
    const from = where(event);
    const drag = from.found?.classList.contains("diamond") || (from.onLine && !from.found);
    if (!drag) {
      if (from.found?.dataset.budget) model.send({ budget: Number(from.found.dataset.budget) });
      return;
    }
    event.preventDefault();
    tip.hide();
    let bytes = null;
    follow(event, {
      moved: (next) => {
        bytes = Math.round(Math.max(S.smallest ?? 0, Math.min(S.top, S.budget + where(next).bytes - from.bytes)));
        announce(el, MOVING, { bytes });
      },
      over: (_, counts) => {
        const settled = counts && bytes !== S.budget ? bytes : null;
        announce(el, MOVING, { bytes: null, settled });
        if (settled !== null) model.send({ budget: bytes });
      },
    });
  };
  const point = (event) => {
    if (!S || event.buttons) return;
    const { found, onLine } = where(event);
    root.style.cursor = found?.classList.contains("diamond") || (onLine && !found) ? "ns-resize" : found?.dataset.budget ? "pointer" : "";
    if (found) tip.show(found.dataset.said.split("\n"), event);
    else tip.hide();
  };
  let held = false; // a hand is on the budget
  const heard = (detail) => {
    preview = detail.bytes === null ? null : detail;
    if (S && scale) move();
  };
  const moved = ({ bytes }) => (held = bytes !== null);
  const changed = () => {
    if (!held) preview = null;
    draw();
  };
  let unhear = [];
  const sized = new ResizeObserver(() => {
    if (!unhear.length && el.isConnected) unhear = [listen(el, MOVING, moved), listen(el, PREVIEW, heard)];
    draw();
  });
  sized.observe(el);
  root.addEventListener("pointerdown", grab);
  root.addEventListener("pointermove", point);
  root.addEventListener("pointerleave", tip.hide);
  root.addEventListener("keydown", press);
  root.addEventListener("focusout", tip.hide);
  model.on("change:known", changed);
  return () => {
    sized.disconnect();
    unhear.forEach((stop) => stop());
    model.off("change:known", changed);
  };
}

export default { initialize: keepListening, render };
