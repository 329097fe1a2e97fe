// The picture of a step on the page of its kernel: what a hand does in it goes back as messages.
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 };
const NEAR = 4; // pixels: a shorter way is a click

function render({ model, el }) {
  el.classList.add("schedule-explorer-timeline");
  const S = { step: null, ghost: null, preview: null, moving: null, run: null, range: null, byTime: false, open: new Set() };
  const picture = stepPicture(el, {
    name: ({ step, unit }) => `Memory during one training step: peak ${amount(step.peak[1], unit)} of ${step.runs} runs`,
  });
  const tip = tipIn(el);
  const redraw = (all) => (all ? picture.draw(S) : picture.walk(S));
  const walk = walker(S, { redraw, changed: () => model.send({ walked: S.run, range: S.range }) });
  const legend = html("div", { className: "schedule-explorer-legend" });
  el.append(legend, walk.box);
  const { root } = picture;
  let held = false; // a hand is on the budget
  let anchor = null; // of a stretch that is chosen by keyboard
  root.tabIndex = 0;

  // Schedules known for other budgets, as outlines that the kernel sends when asked.
  const outlines = (model.scheduleExplorerOutlines ??= new Map());
  const asked = new Set();
  const want = (key) => {
    if (!key || outlines.has(key) || asked.has(key)) return;
    asked.add(key);
    model.send({ want: key });
  };
  let idle = 0;
  const prefetch = () => {
    clearTimeout(idle);
    idle = setTimeout(() => want(model.get("known").find((key) => !outlines.has(key) && !asked.has(key))), 150);
  };

  const drawn = () => {
    if (!el.clientWidth) return;
    picture.draw(S);
    if (!S.preview) legend.replaceChildren(...picture.legend(S));
    walk.told();
    Object.assign(el.dataset, { drawn: Number(el.dataset.drawn ?? 0) + 1, budget: S.budget ?? "", known: Boolean(S.preview) });
  };
  const pull = () => {
    const told = table(model.get("table"));
    const shown = table(model.get("step"));
    if (!told || !shown) return;
    take(S, told, shown);
    if (S.moving === null) S.preview = null;
    drawn();
    prefetch();
  };
  const preview = ({ bytes, point }) => {
    S.moving = bytes;
    const found = point && outlines.get(point.key);
    if (bytes === null) S.preview = null;
    else if (found) S.preview = found;
    else want(point?.key);
    S.waiting = bytes !== null && !found ? point?.key : null;
    announce(el, LAYERS, bytes === null ? null : found?.layers);
    drawn();
  };
  const receive = ({ key, outline }) => {
    outlines.set(key, withTotals(unpack(outline)));
    asked.delete(key);
    if (S.waiting === key && S.moving !== null) {
      S.preview = outlines.get(key);
      announce(el, LAYERS, S.preview.layers);
      drawn();
    }
    prefetch();
  };

  // Dragging: the budget's line, the playhead, or a stretch of runs.
  const grab = (event) => {
    const band = event.target.closest?.("[data-band]");
    if (band) return choose(band);
    const from = picture.at(event, S);
    if (!S.step || !from.inside || event.button) return;
    tip.hide();
    if (from.budget && !from.knob) return dragBudget(event);
    follow(event, {
      moved: (next) => {
        const to = picture.at(next, S);
        if (from.knob) return walk.move(to.run);
        if (Math.abs(to.x - from.x) < NEAR) return;
        [S.run, S.range] = [null, [Math.min(from.run, to.run), Math.max(from.run, to.run)]];
        redraw();
        walk.told();
      },
      over: (last, counts) => {
        if (!counts) return;
        if (S.range && S.run === null && Math.abs(picture.at(last, S).x - from.x) >= NEAR) model.send({ walked: null, range: S.range });
        else if (!from.knob) {
          if (S.run !== null) walk.move(from.run);
          model.send({ picked: S.model.layers[S.model.layer_of[S.step.operators[from.run]]] });
        }
      },
    });
  };
  const dragBudget = (event) => {
    const bounded = (bytes) => Math.round(Math.max(S.least ?? 0, Math.min(S.top, bytes)));
    let bytes = S.budget;
    follow(event, {
      moved: (next) => {
        bytes = bounded(picture.at(next, S).bytes);
        announce(el, MOVING, { bytes });
      },
      over: (_, counts) => {
        const settled = counts && bytes !== S.budget ? bytes : null;
        announce(el, MOVING, { bytes: null, settled });
        if (settled !== null) model.send({ budget: bytes });
      },
    });
  };
  const choose = (band) => {
    const label = Number(band.dataset.band);
    if (band.dataset.more !== undefined) {
      if (!S.open.delete(label)) S.open.add(label);
      picture.draw(S);
    }
    if (band.dataset.layer) model.send({ picked: band.dataset.layer });
  };
  const point = (event) => {
    if (!S.step || S.preview || event.buttons) return tip.hide();
    const found = picture.at(event, S);
    root.style.cursor = found.inside && found.budget ? "ns-resize" : found.inside && found.knob ? "ew-resize" : found.inside ? "crosshair" : "";
    if (!found.inside || found.x > MARGIN.left + picture.geometry.inner) return tip.hide();
    tip.show(about(found.run), event);
  };
  const about = (run) => {
    const story = storyOf(S.step, S.model, run);
    const parts = Object.entries(S.step.bytes).filter(([, amounts]) => amounts[run] > 0);
    const made = [...story.appears, ...story.returns].slice(0, 2).map((x) => `makes ${x.name}, ${told(x.bytes)}`);
    return [
      story.layer,
      `${STAGES[story.stage]}, run ${run + 1} of ${S.step.runs}`,
      story.does,
      ...made,
      `in memory ${told(story.bytes)}`,
      ...parts.map(([key, amounts]) => `\u2003${S.palette[key].name} ${told(amounts[run])}`),
    ];
  };
  const press = (event) => {
    const step = KEYS[event.key];
    if (step && S.step) {
      if (event.shiftKey) {
        // One end stays where the stretch was begun, the other moves.
        const [a, b] = S.range ?? [S.run ?? S.step.peak[0], S.run ?? S.step.peak[0]];
        if (a === b || (anchor !== a && anchor !== b)) anchor = a;
        const moving = Math.max(0, Math.min(S.step.runs - 1, (anchor === a ? b : a) + step));
        [S.run, S.range] = [null, [Math.min(anchor, moving), Math.max(anchor, moving)]];
        redraw();
        walk.told();
        model.send({ walked: null, range: S.range });
      } else {
        walk.stop();
        walk.move((S.run ?? S.step.peak[0] - step) + step);
      }
    } else if (event.key === "Home" || event.key === "End") walk.move(event.key === "Home" ? 0 : S.step.runs - 1);
    else if (event.key === "Enter" && S.run !== null) model.send({ picked: S.model.layers[S.model.layer_of[S.step.operators[S.run]]] });
    else if (event.key === "Escape") walk.leave();
    else return;
    event.preventDefault();
  };
  root.addEventListener("pointerdown", grab);
  root.addEventListener("pointermove", point);
  root.addEventListener("pointerleave", tip.hide);
  root.addEventListener("keydown", press);

  // The budget that was let go stays until there is an answer for it.
  const moved = ({ bytes }) => (held = bytes !== null);
  const changed = () => {
    if (!held) [S.moving, S.waiting] = [null, null];
    pull();
  };
  let unhear = [];
  const sized = new ResizeObserver(() => {
    if (!unhear.length && el.isConnected) unhear = [listen(el, MOVING, moved), listen(el, PREVIEW, preview)];
    if (S.step) drawn();
    else pull();
  });
  sized.observe(el);
  model.on("change:step", changed);
  model.on("change:known", prefetch);
  model.on("msg:custom", receive);
  return () => {
    walk.stop();
    clearTimeout(idle);
    sized.disconnect();
    unhear.forEach((stop) => stop());
    model.off("change:step", changed);
    model.off("change:known", prefetch);
    model.off("msg:custom", receive);
  };
}

export default { initialize: keepListening, render };
