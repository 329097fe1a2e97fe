// The answer in one line; while a hand moves the budget, that of the nearest schedule known, and it tells the others which.
function render({ model, el }) {
  el.classList.add("schedule-explorer-headline");
  const big = html("span", { className: "big" });
  const note = html("span", { className: "note" });
  el.append(big, note);
  let waiting = null; // the budget that was let go, for which there is no answer yet

  const pull = () => {
    waiting = null;
    el.classList.remove("known");
    big.textContent = model.get("text");
    note.textContent = model.get("note");
  };
  // Once a frame: a hand, or a key that is held, may be faster than the pictures.
  let frame = 0;
  const move = (detail) => {
    cancelAnimationFrame(frame);
    if (detail.bytes === null) over(detail);
    else frame = requestAnimationFrame(() => lead(detail.bytes));
  };
  const over = ({ settled }) => {
    waiting = settled ?? null;
    if (waiting !== null) return;
    announce(el, PREVIEW, { bytes: null });
    pull();
  };
  let [text, known] = ["", null];
  const read = () => {
    if (text !== model.get("known")) [text, known] = [model.get("known"), table(model.get("known"))];
    return known;
  };
  const lead = (bytes) => {
    const { points, peak_bytes: plain, time_ms: time, unit } = read() ?? { points: [] };
    let best = null;
    for (const [peak, took, key] of points) if (peak <= bytes && (!best || took < best.took)) best = { peak, took, key };
    const point = best && { ...best, share: 100 * (best.took / time - 1) };
    el.classList.add("known");
    if (point) {
      const [memory, more] = [signed(100 * (point.peak / plain - 1), 0), signed(point.share, 1)];
      const same = memory === "0" && more === "0.0" && point.took <= time;
      big.textContent = same ? "as plain PyTorch: nothing has to be recomputed" : `${memory} % memory for ${more} % time`;
      note.textContent = `nearest schedule known for ${amount(bytes, unit)}; let go to solve`;
    } else {
      big.textContent = "no schedule known";
      note.textContent = points.length ? `for ${amount(bytes, unit)}; let go to solve` : "yet";
    }
    announce(el, PREVIEW, { bytes, point });
  };
  let unhear = null;
  const sized = new ResizeObserver(() => (unhear ??= el.isConnected ? listen(el, MOVING, move) : null));
  sized.observe(el);
  const changed = () => {
    // What is told of a solve meanwhile is of the budget before.
    if (!el.classList.contains("known") || read()?.budget === waiting) pull();
  };
  model.on("change", changed);
  pull();
  return () => {
    cancelAnimationFrame(frame);
    sized.disconnect();
    unhear?.();
    model.off("change", changed);
  };
}

export default { initialize: keepListening, render };
