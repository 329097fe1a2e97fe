// Plotly's script comes as text in the trait `source`, and is loaded by the first plot of the page that is drawn: as a
// part of this module it could take longer than the two seconds after which anywidget gives a module up.
const shared = (globalThis.scheduleExplorerPlots ??= (() => {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
})());

async function load(source) {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

function initialize({ model }) {
  shared.resolve(() => (shared.loaded ??= load(model.get("source"))));
}

export default { initialize, render() {} };
