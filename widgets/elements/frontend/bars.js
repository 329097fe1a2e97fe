// The bars of a plot that can be picked, by keyboard: one stop. To the left and right arrows lead from one to the next
// in the order in which they begin, up and down to what lies there at the same time. Enter and space pick.
const ORDER = { ArrowLeft: -1, ArrowRight: 1 };
const UPWARDS = { ArrowUp: -1, ArrowDown: 1 };

function barStops(place) {
  let kept = null; // the key of the stop, for the figures to come
  const bars = () => {
    const area = place.querySelector(".nsewdrag")?.getBoundingClientRect();
    const found = [...place.querySelectorAll(".barlayer .point")].flatMap((point) => {
      const [{ trace }] = point.closest(".trace").__data__;
      const { i } = point.__data__;
      const [picks, path] = [trace.customdata?.[i], point.querySelector("path")];
      if (picks === undefined || !path) return [];
      const box = path.getBoundingClientRect();
      const across = box.width > 0 && box.right > area.left && box.left < area.right;
      const seen = across && box.height > 0 && box.bottom > area.top && box.top < area.bottom;
      // Of bars that stand upright the name is below them, and what is said when pointed at only adds to it.
      const name = trace.orientation === "h" ? "" : `${trace.name}, ${trace.x[i]}`;
      const said = name + (trace.hovertext?.[i] ?? "").replaceAll("<br>", ", ").replaceAll(/<[^>]*>/g, "");
      const key = JSON.stringify([picks, trace.base?.[i]]);
      return seen ? [{ path, box, picks, said, key, at: { curveNumber: trace.index, pointNumber: i } }] : [];
    });
    return found.sort((a, b) => a.box.left - b.box.left || b.box.bottom - a.box.bottom);
  };
  const settle = (bar) => {
    for (const other of place.querySelectorAll(".barlayer [tabindex]")) other.removeAttribute("tabindex");
    if (!bar) return;
    kept = bar.key;
    bar.path.setAttribute("role", "button");
    bar.path.setAttribute("aria-label", bar.said);
    bar.path.tabIndex = 0;
  };
  const above = (all, { box }, way) => {
    const middle = (box.left + box.right) / 2;
    const far = (other) => way * (other.box.top + other.box.bottom - box.top - box.bottom);
    const there = all.filter((other) => other.box.left <= middle && other.box.right >= middle && far(other) > 0);
    return there.sort((a, b) => far(a) - far(b))[0];
  };
  return {
    focused: () => Boolean(document.activeElement?.closest(".barlayer")) && place.contains(document.activeElement),
    drawn(focused) {
      const all = bars();
      const bar = all.find(({ key }) => key === kept) ?? all[0];
      settle(bar);
      if (focused) bar?.path.focus({ preventScroll: true });
    },
    // What a key leads to: a bar to look at, or one that is picked.
    press({ key, target }) {
      if (!target.closest(".barlayer")) return {};
      const all = bars();
      const at = all.findIndex(({ path }) => path === target);
      if (key === "Enter" || key === " ") return { picked: all[at] };
      const next = key in ORDER ? all[Math.max(0, Math.min(all.length - 1, at + ORDER[key]))] : null;
      const reached = next ?? (key in UPWARDS && at >= 0 ? above(all, all[at], UPWARDS[key]) ?? all[at] : null);
      if (!reached) return {};
      settle(reached);
      reached.path.focus({ preventScroll: true });
      return { reached };
    },
  };
}
