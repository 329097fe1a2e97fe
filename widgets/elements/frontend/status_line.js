// One live region that stays in the page while its text changes, so that screen readers announce each change.
//
// A page that comes back asks the kernel for the states of all widgets, and hears nothing until it has built them: what
// is told meanwhile, the end of a long run perhaps, never arrives. Once it is built it says so, and is told again; so is
// a page that was there from the start, which looks the same from here.
const ENOUGH = 0.08; // of the whole, to tell from it how long the rest takes
const SIGNS = { busy: "…", good: "✓", warning: "!", bad: "✕" };

function render({ model, el }) {
  model.send({ built: true });
  el.classList.add("schedule-explorer-status");
  const sign = document.createElement("span");
  const text = document.createElement("span");
  const progress = document.createElement("progress");
  sign.className = "sign";
  sign.setAttribute("aria-hidden", "true");
  text.setAttribute("role", "status");
  text.setAttribute("aria-live", "polite");
  progress.setAttribute("aria-label", "Progress");
  progress.max = 1;
  const left = document.createElement("span");
  left.className = "left";
  el.append(sign, text, progress, left);

  // From how fast it went so far; said once that is known.
  let begun = null;
  const remaining = (fraction) => {
    if (fraction === null) begun = null;
    else if (begun === null || fraction < begun.fraction) begun = { fraction, at: performance.now() };
    const done = begun === null ? 0 : fraction - begun.fraction;
    const seconds = done < ENOUGH ? null : ((performance.now() - begun.at) / 1000 / done) * (1 - fraction);
    left.textContent = seconds === null || fraction >= 1 ? "" : seconds < 90 ? `about ${Math.ceil(seconds)} s left` : `about ${Math.ceil(seconds / 60)} min left`;
  };
  const pull = () => {
    const fraction = model.get("progress");
    remaining(fraction);
    el.dataset.tone = model.get("tone");
    sign.textContent = SIGNS[model.get("tone")] ?? "";
    text.textContent = model.get("text");
    progress.hidden = fraction === null;
    progress.value = fraction ?? 0;
  };
  // Said by the page: there is no kernel any more that could.
  const lost = () => {
    el.dataset.tone = "warning";
    sign.textContent = SIGNS.warning;
    text.textContent = "The kernel that solves was restarted or has ended: run the cell again to go on.";
    progress.hidden = true;
    left.textContent = "";
  };
  model.on("change", pull);
  model.on("comm_live_update", lost);
  pull();
  return () => {
    model.off("change", pull);
    model.off("comm_live_update", lost);
  };
}

export default { initialize: keepListening, render };
