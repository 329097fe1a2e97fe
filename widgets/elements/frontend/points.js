// What a plot says when something in it is pointed at, by keyboard: one stop. To the left and right arrows lead from one
// bar or marker to the next in the order in which they begin, up and down to what lies there at the same time. Enter and
// space pick.
const ORDER = { ArrowLeft: -1, ArrowRight: 1 };
const UPWARDS = { ArrowUp: -1, ArrowDown: 1 };
const LAYERS = ".barlayer, .scatterlayer";

// Of bars that stand upright, and of markers without a text, the name is elsewhere in the plot.
function saidOf(trace, i) {
  const text = (trace.hovertext?.[i] ?? "").replaceAll("<br>", ", ").replaceAll(/<[^>]*>/g, "");
  if (trace.type === "bar") return trace.orientation === "h" ? text : `${trace.name}, ${trace.x[i]}${text}`;
  const parts = [trace.name, trace.x[i], trace.y[i], trace.text?.[i]].filter((x) => x !== undefined && x !== "");
  return text || parts.map((x) => (typeof x === "number" ? Number(x.toPrecision(4)) : x)).join(", ");
}

function pointStops(place) {
  let kept = null; // the key of the stop, for the figures to come
  const areas = () => {
    const all = [...place.querySelectorAll(".nsewdrag")];
    return new Map(all.map((area) => [area.dataset.subplot, area.getBoundingClientRect()]));
  };
  const points = () => {
    const within = areas();
    const found = [...place.querySelectorAll(".barlayer .point, .scatterlayer .point")].flatMap((point) => {
      const [{ trace }] = point.closest(".trace").__data__;
      const { i } = point.__data__;
      const path = point.matches("path") ? point : point.querySelector("path");
      const area = within.get(trace.xaxis + trace.yaxis);
      if (trace.hoverinfo === "skip" || !path || !area) return [];
      const box = path.getBoundingClientRect();
      const across = box.width > 0 && box.right > area.left && box.left < area.right;
      const seen = across && box.height > 0 && box.bottom > area.top && box.top < area.bottom;
      const picks = trace.customdata?.[i];
      const key = JSON.stringify([trace.ids?.[i] ?? picks ?? i, trace.base?.[i] ?? trace.name]);
      const at = { curveNumber: trace.index, pointNumber: i };
      return seen ? [{ path, box, picks, said: saidOf(trace, i), key, at, subplot: trace.xaxis + trace.yaxis }] : [];
    });
    return found.sort((a, b) => a.box.left - b.box.left || b.box.bottom - a.box.bottom);
  };
  const settle = (point) => {
    for (const other of place.querySelectorAll(`:is(${LAYERS}) [tabindex]`)) other.removeAttribute("tabindex");
    if (!point) return;
    kept = point.key;
    point.path.setAttribute("role", point.picks === undefined ? "img" : "button");
    point.path.setAttribute("aria-label", point.said);
    point.path.tabIndex = 0;
  };
  const above = (all, { box }, way) => {
    const middle = (box.left + box.right) / 2;
    const far = (other) => way * (other.box.top + other.box.bottom - box.top - box.bottom);
    const there = all.filter((other) => other.box.left <= middle && other.box.right >= middle && far(other) > 0);
    return there.sort((a, b) => far(a) - far(b))[0];
  };
  return {
    focused: () => Boolean(document.activeElement?.closest(LAYERS)) && place.contains(document.activeElement),
    drawn(focused) {
      const all = points();
      const point = all.find(({ key }) => key === kept) ?? all[0];
      settle(point);
      if (focused) point?.path.focus({ preventScroll: true });
    },
    // What a key leads to: a point to look at, or what is picked.
    press({ key, target }) {
      if (!target.closest(LAYERS)) return {};
      const all = points();
      const at = all.findIndex(({ path }) => path === target);
      if (key === "Enter" || key === " ") return { picked: all[at]?.picks };
      const next = key in ORDER ? all[Math.max(0, Math.min(all.length - 1, at + ORDER[key]))] : null;
      const reached = next ?? (key in UPWARDS && at >= 0 ? above(all, all[at], UPWARDS[key]) ?? all[at] : null);
      if (!reached) return {};
      settle(reached);
      reached.path.focus({ preventScroll: true });
      return { reached };
    },
  };
}
