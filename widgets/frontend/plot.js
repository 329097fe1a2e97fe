// One plotly figure, which arrives whole, as JSON, in the trait `figure`; what is clicked goes back as a message.
const shared = (globalThis.scheduleExplorerPlots ??= (() => {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
})());
const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

function render({ model, el }) {
  const place = document.createElement("div");
  place.className = `schedule-explorer-plot schedule-explorer-${model.get("name")}`;
  place.setAttribute("role", "img");
  el.append(place);

  // One drawing at a time: what arrives meanwhile replaces what waits.
  let busy = false;
  let waiting = false;
  let plotly = null;
  const draw = async () => {
    waiting = true;
    if (busy) return;
    busy = true;
    try {
      plotly ??= (await shared.promise)();
      while (waiting) {
        waiting = false;
        const text = model.get("figure");
        if (!text) continue;
        const figure = JSON.parse(text);
        const fresh = !place.data;
        place.setAttribute("aria-label", figure.layout.meta ?? model.get("name"));
        await plotly.react(place, figure.data, figure.layout, CONFIG);
        if (fresh) place.on("plotly_click", pick);
        place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
      }
    } finally {
      busy = false;
    }
  };
  const pick = (event) => {
    const point = event.points.find((x) => x.customdata !== undefined && x.customdata !== null);
    if (point) model.send({ picked: point.customdata });
  };
  // Drawn where it has a width, which the page gives it after this call, or when its tab is opened.
  let stale = true;
  const changed = () => {
    stale = !place.clientWidth;
    if (!stale) draw();
  };
  const sized = new ResizeObserver(() => {
    if (!place.clientWidth) return;
    if (stale) changed();
    else if (place.data) plotly.Plots.resize(place);
  });
  model.on("change:figure", changed);
  sized.observe(place);
  return () => {
    sized.disconnect();
    model.off("change:figure", changed);
    if (place.data) plotly.purge(place);
  };
}

export default { render };
