// A native range input and a typed readout: both focusable and named, as assistive technology expects.
const GIB = 2 ** 30;

function render({ model, el }) {
  el.classList.add("schedule-explorer-budget");
  const label = document.createElement("span");
  const range = document.createElement("input");
  const readout = document.createElement("input");
  const unit = document.createElement("span");
  label.textContent = "Budget";
  unit.textContent = "GiB";
  range.type = "range";
  range.setAttribute("aria-label", "Memory budget");
  // Else JupyterLab takes arrows and Enter for its own shortcuts; it asks the focused element itself.
  range.dataset.lmSuppressShortcuts = readout.dataset.lmSuppressShortcuts = "true";
  readout.type = "number";
  readout.setAttribute("aria-label", "Memory budget in GiB");
  el.append(label, range, readout, unit);

  // Enough digits for one step of the slider to show.
  const digits = () => Math.min(6, Math.max(2, Math.ceil(-Math.log10(model.get("step_bytes") / GIB))));
  const write = (bytes) => {
    readout.value = (bytes / GIB).toFixed(digits());
    range.setAttribute("aria-valuetext", `${readout.value} GiB`);
  };
  // What a hand is on is not changed under it.
  let dragging = false;
  let typing = false;
  const pull = () => {
    range.min = model.get("minimum_bytes");
    range.max = model.get("maximum_bytes");
    range.step = model.get("step_bytes");
    if (!dragging) range.value = model.get("budget_bytes");
    readout.step = (model.get("step_bytes") / GIB).toFixed(digits());
    readout.min = 0;
    range.disabled = readout.disabled = model.get("disabled");
    if (!dragging && !typing) write(model.get("budget_bytes"));
  };
  const push = (bytes) => {
    model.set("budget_bytes", Math.round(bytes));
    model.save_changes();
  };
  range.addEventListener("input", () => {
    dragging = true;
    write(Number(range.value));
  });
  range.addEventListener("change", () => {
    dragging = false;
    push(Number(range.value));
  });
  readout.addEventListener("input", () => {
    typing = true;
  });
  const commit = () => {
    if (!typing) return;
    typing = false;
    const bytes = Number(readout.value) * GIB;
    if (bytes >= 1) push(bytes);
    else pull();
  };
  readout.addEventListener("change", commit);
  readout.addEventListener("blur", commit);
  readout.addEventListener("keydown", (event) => {
    if (event.key === "Enter") commit();
  });
  model.on("change", pull);
  pull();
  return () => model.off("change", pull);
}

export default { render };
