// Plotly drawing figures that arrive whole, as JSON, in the traits named here. Python puts `definePlotly(module)` before
// this text. It runs with the first drawing: a module that takes longer than two seconds to load, as that script may
// on a busy machine, is given up by anywidget, and every later message to the widget with it.
let loaded = null;
function plotly() {
  if (loaded === null) {
    const module = { exports: {} };
    definePlotly(module, module.exports);
    loaded = module.exports.Plotly ?? module.exports;
  }
  return loaded;
}

const FIGURES = ["timeline", "overview"];
const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

// One drawing at a time per figure: what arrives meanwhile replaces what waits.
function plot(model, name, el) {
  let busy = false;
  let waiting = false;
  const draw = async () => {
    waiting = true;
    if (busy) return;
    busy = true;
    while (waiting) {
      waiting = false;
      const text = model.get(name);
      if (!text) continue;
      const figure = JSON.parse(text);
      el.setAttribute("aria-label", figure.layout.meta ?? name);
      await plotly().react(el, figure.data, figure.layout, CONFIG);
    }
    busy = false;
  };
  return draw;
}

function render({ model, el }) {
  const stops = FIGURES.map((name) => {
    const place = document.createElement("div");
    place.className = `schedule-explorer-${name}`;
    place.setAttribute("role", "img");
    el.append(place);
    const draw = plot(model, name, place);
    model.on(`change:${name}`, draw);
    // Drawn once it has a width, which the page gives it after this call.
    const sized = new ResizeObserver(() => {
      if (!place.clientWidth) return;
      if (place.data) plotly().Plots.resize(place);
      else draw();
    });
    sized.observe(place);
    return () => {
      sized.disconnect();
      model.off(`change:${name}`, draw);
      if (place.data) plotly().purge(place);
    };
  });
  return () => stops.forEach((stop) => stop());
}

export default { render };
