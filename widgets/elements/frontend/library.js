// Plotly's script comes compressed in the trait `source`, and is loaded by the first plot of the page that is drawn: as a
// part of this module it could take longer than the two seconds after which anywidget gives a module up.
const shared = (globalThis.scheduleExplorerPlots ??= (() => {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
})());

// JupyterLab takes arrows, letters and Enter for its own commands unless the very element with the focus says no: an X
// in one of our lists would cut the cell. One listener serves all explorers of the page.
function keepKeys({ target }) {
  if (target.closest(".schedule-explorer")) target.dataset.lmSuppressShortcuts = "true";
}

async function load(source) {
  const script = new Blob([source]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(script).text();
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

function initialize({ model }) {
  keepListening({ model });
  shared.resolve(() => (shared.loaded ??= load(model.get("source"))));
  if (shared.keepsKeys) return;
  shared.keepsKeys = true;
  document.addEventListener("focusin", keepKeys);
}

export default { initialize, render() {} };
