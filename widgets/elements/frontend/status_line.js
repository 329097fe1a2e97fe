// One live region that stays in the page while its text changes, so that screen readers announce each change.
const SIGNS = { busy: "…", good: "✓", warning: "!", bad: "✕" };

function render({ model, el }) {
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
  el.append(sign, text, progress);

  const pull = () => {
    const fraction = model.get("progress");
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
  };
  model.on("change", pull);
  model.on("comm_live_update", lost);
  pull();
  return () => {
    model.off("change", pull);
    model.off("comm_live_update", lost);
  };
}

export default { render };
