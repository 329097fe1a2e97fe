// One plotly figure, which arrives whole, as JSON, in the trait `figure`; what is clicked goes back as a message.
const shared = (globalThis.scheduleExplorerPlots ??= (() => {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
})());
const NARROW = 760; // pixels: fewer are too few for plots side by side
const LEAST_WIDTH = 120; // plotly's margins leave nothing of less
// Nothing leaves the page: no button that uploads a plot.
const CONFIG = { displaylogo: false, showSendToCloud: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const dark = () => document.body.dataset.jpThemeLight === "false";
const DARK = { bgcolor: "#2b2b2b", bordercolor: "#888888", font: { color: "#eeeeee", size: 12 } }; // of what is pointed at
const NEAR = 3; // pixels: a shorter way is no dragging, and so far from an edge is still at it
const AXIS = /^[xy]axis\d*$/;
const IDLE_MS = 300; // at most, until what is out of sight is drawn
const REST_MS = 60; // at most, between two plots

// The page draws one plot at a time, what is in sight first; what is not waits until there is nothing else to do. After
// each it rests for as long as that took: where there are few processors a cell of the notebook needs one meanwhile.
const queue = (shared.queue ??= new Map());
const inSight = (place) => {
  const { top, bottom } = place.getBoundingClientRect();
  return bottom > 0 && top < window.innerHeight;
};
const idle = () => new Promise((go) => (window.requestIdleCallback ?? setTimeout)(go, { timeout: IDLE_MS }));
const rest = (ms) => new Promise((go) => setTimeout(go, Math.min(ms, REST_MS)));

async function drawAll() {
  if (shared.drawing) return;
  shared.drawing = true;
  await null; // what comes with the same message goes with it
  while (queue.size) {
    let place = [...queue.keys()].find(inSight);
    if (!place) {
      await idle();
      place = [...queue.keys()].find(inSight) ?? queue.keys().next().value;
    }
    const draw = queue.get(place);
    queue.delete(place);
    const began = performance.now();
    await draw?.().catch(reportError);
    if (queue.size) await rest(performance.now() - began);
  }
  shared.drawing = false;
}

// By keyboard the buttons of a plot are one stop, and arrows go from one to the next.
function toolbar(place) {
  const buttons = [...place.querySelectorAll(".modebar-btn")];
  const stop = buttons.find((button) => button === document.activeElement) ?? buttons[0];
  for (const button of buttons) button.tabIndex = button === stop ? 0 : -1;
}

function walk(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const buttons = [...event.currentTarget.querySelectorAll(".modebar-btn")];
  const at = buttons.indexOf(document.activeElement);
  if (!step || at < 0) return;
  buttons[(at + step + buttons.length) % buttons.length].focus();
  toolbar(event.currentTarget);
  event.preventDefault();
}

const inside = ({ left, right, top, bottom }, x, y, more) =>
  x >= left && x <= right && y >= top - more && y <= bottom + more;

// The range of each axis, none where plotly finds it. One that is another than before is seen whole: of a reader's zoom
// plotly would keep the end at which both have the same number.
function extents(layout) {
  const axes = Object.entries(layout).filter(([name]) => AXIS.test(name));
  for (const [, axis] of axes) axis.uirevision = `${axis.uirevision ?? layout.uirevision} ${axis.range ?? ""}`;
  return axes.map(([name, axis]) => [name, [...(axis.range ?? [])]]); // a copy, for plotly writes a zoom into these
}

function render({ model, el }) {
  const place = document.createElement("div");
  place.className = `schedule-explorer-plot schedule-explorer-${model.get("name")}`;
  place.setAttribute("role", "figure");
  place.addEventListener("keydown", walk);
  const tip = document.createElement("div");
  tip.className = "schedule-explorer-tip";
  tip.hidden = true;
  el.classList.add("schedule-explorer-figure");
  el.append(place, tip);

  let plotly = null;
  let meanwhile = null; // a figure that is shown for as long as a hand moves the budget
  let [alternative, narrow] = [false, false];
  const stops = pointStops(place);
  const cells = cellStop(place, el);
  let left = null; // a shape that was dragged
  const draw = async () => {
    plotly ??= await (await shared.promise)();
    const text = meanwhile ?? model.get("figure");
    stale = place.clientWidth < LEAST_WIDTH; // its tab may have been closed since
    if (stale || !text) return;
    const figure = JSON.parse(text);
    const fresh = !place.data;
    place.setAttribute("aria-label", figure.layout.meta ?? model.get("name"));
    alternative = Object.keys(figure.narrow ?? {}).length > 0;
    narrow = place.clientWidth < NARROW;
    const layout = narrow ? { ...figure.layout, ...figure.narrow } : figure.layout;
    layout.hoverlabel = { ...layout.hoverlabel, ...(dark() ? DARK : {}) };
    const [whole, focused] = [extents(layout), stops.focused()];
    await plotly.react(place, figure.data, layout, CONFIG);
    resetsTo(whole);
    if (fresh) {
      place.on("plotly_click", pick);
      place.on("plotly_hover", point);
      place.on("plotly_unhover", () => (tip.hidden = true));
      place.on("plotly_afterplot", cells.settle);
    }
    toolbar(place);
    stops.drawn(focused);
    cells.settle();
    place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
  };
  // "Reset axes" leads to all of this figure; plotly remembers the ranges of the first one.
  const resetsTo = (whole) => {
    for (const [name, [low, high]] of whole) {
      const initial = { _rangeInitial0: low, _rangeInitial1: high, _autorangeInitial: low === undefined };
      Object.assign(place._fullLayout[name], initial);
    }
  };
  const pick = ({ points }) => {
    for (const { customdata, data, pointNumber } of points) {
      const picked = customdata ?? data.meta?.picks?.[pointNumber[1]];
      if (picked !== undefined && picked !== null) {
        model.send({ picked });
        return;
      }
    }
  };
  const press = (event) => {
    const { picked, reached, said } = { ...stops.press(event), ...cells.press(event) };
    if (picked !== undefined) model.send({ picked });
    if (reached) plotly.Fx.hover(place, [reached.at], reached.subplot);
    if (said) tell(said, cells.cursor.getBoundingClientRect());
    if (picked !== undefined || reached || said) event.preventDefault();
  };
  el.addEventListener("keydown", press);
  cells.cursor.addEventListener("focus", () => tell(cells.settle(), cells.cursor.getBoundingClientRect()));
  cells.cursor.addEventListener("blur", () => (tip.hidden = true));
  place.addEventListener("focusout", () => place.data && plotly.Fx.unhover(place));
  // A shape called "handle", the figure's first, can be dragged up and down. By plotly's own means, its edges as well.
  const grab = (event) => {
    const shape = place.layout?.shapes?.[0]?.name === "handle" ? place.querySelector(".shapelayer path") : null;
    if (!shape || event.button) return;
    const [box, area] = [shape, place.querySelector(".nsewdrag")].map((part) => part.getBoundingClientRect());
    const [x, y] = [event.clientX, event.clientY];
    const seen = inside(area, x, y, 0); // what is zoomed away cannot be taken hold of beside the axes
    if (!seen || !inside(box, x, y, NEAR)) return;
    event.preventDefault(); // else plotly zooms
    place.setPointerCapture(event.pointerId);
    const [low, high] = place.layout.yaxis.range;
    const over = new AbortController();
    const drop = ({ type, clientY }) => {
      over.abort();
      const by = Math.abs(clientY - y) < NEAR ? 0 : y - clientY;
      if (type === "pointerup") model.send({ dragged: (by / area.height) * (high - low) });
      if (type !== "pointerup" || !by) shape.style.transform = "";
      else left = shape; // where it was let go, until the kernel has answered
    };
    const follow = ({ clientY }) => (shape.style.transform = `translateY(${clientY - y}px)`);
    place.addEventListener("pointermove", follow, over);
    for (const type of ["pointerup", "pointercancel"]) place.addEventListener(type, drop, over);
  };
  // A figure that comes with the answer has an outline of its own; else the old one goes back.
  const answered = () => {
    if (left && !queue.has(place)) left.style.transform = "";
    left = null;
  };
  place.addEventListener("pointerdown", grab, { capture: true });
  // A matrix would need a text for every cell; its rows, columns and values have names instead.
  const point = ({ points: [{ data, pointNumber, z }], event }) => {
    const names = data.meta?.rows && data.meta;
    if (names) tell(cellSaid(data, ...pointNumber, z), { right: event.clientX, bottom: event.clientY });
    else tip.hidden = true;
  };
  const tell = (said, { right, bottom }) => {
    tip.hidden = false;
    tip.textContent = said;
    const outer = el.getBoundingClientRect();
    const onTheRight = right - outer.left > el.clientWidth / 2;
    tip.style.left = onTheRight ? "" : `${right - outer.left + 14}px`;
    tip.style.right = onTheRight ? `${el.clientWidth - (right - outer.left) + 14}px` : "";
    tip.style.top = `${bottom - outer.top + 14}px`;
  };
  // Drawn where it has a width, which the page gives it after this call, or when its tab is opened.
  let stale = true;
  const changed = () => {
    stale = place.clientWidth < LEAST_WIDTH;
    if (stale) return;
    queue.set(place, draw);
    drawAll();
  };
  const sized = new ResizeObserver(() => {
    if (place.clientWidth < LEAST_WIDTH) return;
    if (stale || (alternative && narrow !== place.clientWidth < NARROW)) changed();
    else if (place.data) plotly.Plots.resize(place);
  });
  const follow = ({ detail }) => {
    if (meanwhile === (detail ?? null) || detail === undefined) return;
    meanwhile = detail;
    if (inSight(place)) changed();
  };
  const settled = () => {
    meanwhile = null;
    changed();
  };
  const follows = model.get("follows");
  const watched = new ResizeObserver(() => {
    if (!follows || !el.isConnected) return;
    watched.disconnect();
    el.closest(".schedule-explorer")?.addEventListener(follows, follow);
  });
  watched.observe(el);
  model.on("change:figure", settled);
  model.on("msg:custom", answered);
  sized.observe(place);
  return () => {
    sized.disconnect();
    watched.disconnect();
    queue.delete(place);
    model.off("change:figure", settled);
    model.off("msg:custom", answered);
    if (place.data) plotly.purge(place);
  };
}

export default { initialize: keepListening, render };
