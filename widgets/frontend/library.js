// Python puts `definePlotly(module, exports)` before this text. Every plot of the page waits for the first that arrives.
// It runs with the first drawing: a module that takes longer than two seconds to load, as that script may on a busy
// machine, is given up by anywidget, and every later message to the widget with it.
const shared = (globalThis.scheduleExplorerPlots ??= (() => {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
})());

shared.resolve(() => {
  if (!shared.loaded) {
    const module = { exports: {} };
    definePlotly(module, module.exports);
    shared.loaded = module.exports.Plotly ?? module.exports;
  }
  return shared.loaded;
});

export default { render() {} };
