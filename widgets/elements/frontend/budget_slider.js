// A native range input with marks, a typed readout and a list of presets: all focusable and named, as assistive
// technology expects.
const REST_MS = 120;
const make = html;

function render({ model, el }) {
  el.classList.add("schedule-explorer-budget");
  const range = make("input", { type: "range" });
  const ticks = make("div", { className: "ticks" });
  const readout = make("input", { type: "text", inputMode: "decimal", autocomplete: "off" });
  const share = make("span", { className: "share" });
  const presets = make("select");
  range.setAttribute("aria-label", "Memory budget");
  ticks.setAttribute("aria-hidden", "true");
  presets.setAttribute("aria-label", "Budget presets");
  el.append(make("span", { textContent: "Budget" }), make("div", { className: "track" }, range, ticks));
  const unitName = make("span");
  el.append(make("span", { className: "entry" }, readout, unitName, share), presets);

  // One unit for all that is shown: that of PyTorch's peak.
  const unit = () => unitFor(model.get("plain_bytes") || UNITS.GiB);
  // Enough digits for one step of the slider to show.
  const digits = () => Math.min(6, Math.max(0, Math.ceil(-Math.log10(model.get("step_bytes") / UNITS[unit()]))));
  const name = () => {
    unitName.textContent = model.get("plain_bytes") ? unit() : "";
    readout.setAttribute("aria-label", `Memory budget in ${unit()}, or with another unit, or in % of PyTorch's peak`);
    readout.title = `${unit()}, or with a unit (260 MiB), or % of PyTorch's peak (80 %)`;
  };
  const write = (bytes) => {
    const plain = model.get("plain_bytes");
    // Before anything is open there is no budget, which is not a budget of nothing.
    readout.value = plain ? (bytes / UNITS[unit()]).toFixed(digits()) : "";
    share.textContent = plain ? `${((100 * bytes) / plain).toFixed(0)} % of PyTorch's peak` : "";
    range.setAttribute("aria-valuetext", plain ? `${readout.value} ${unit()}` : "not known yet");
  };
  // Marks whose names would overlap are left out; those at the ends come first.
  const thin = () => {
    const spans = [...ticks.children];
    const shown = [];
    for (const tick of [spans[0], spans.at(-1), ...spans.slice(1, -1)].filter(Boolean)) {
      tick.hidden = false;
      const { left, right } = tick.getBoundingClientRect();
      tick.hidden = shown.some((other) => left < other.right + 4 && other.left < right + 4);
      if (!tick.hidden) shown.push({ left, right });
    }
  };
  const mark = () => {
    const [low, high] = [model.get("minimum_bytes"), model.get("maximum_bytes")];
    const marks = model.get("marks");
    ticks.replaceChildren(
      ...marks
        .filter(({ short }) => short)
        .map(({ bytes, short }) => {
          const tick = make("span", { textContent: short });
          const at = (bytes - low) / (high - low || 1);
          // The handle's centre does not reach the ends of the track.
          tick.style.left = `calc(8px + ${at} * (100% - 16px))`;
          tick.dataset.side = at < 0.1 ? "left" : at > 0.9 ? "right" : "middle";
          return tick;
        }),
    );
    thin();
    const options = marks.map(({ bytes, label }) => {
      const amount = `${(bytes / UNITS[unit()]).toFixed(digits())} ${unit()}`;
      return make("option", { value: String(bytes), textContent: label.includes("GiB") ? label : `${label}: ${amount}` });
    });
    presets.replaceChildren(make("option", { value: "", textContent: "Presets" }), ...options);
  };
  // What a hand is on is not changed under it.
  let dragging = false;
  let typing = false;
  const pull = () => {
    name();
    range.min = model.get("minimum_bytes");
    range.max = model.get("maximum_bytes");
    range.step = model.get("step_bytes");
    if (!dragging) range.value = model.get("budget_bytes");
    range.disabled = readout.disabled = presets.disabled = model.get("disabled");
    if (!dragging && !typing) write(model.get("budget_bytes"));
  };
  const push = (bytes) => {
    model.set("budget_bytes", Math.round(bytes));
    model.save_changes();
  };
  range.addEventListener("input", () => {
    dragging = true;
    write(Number(range.value));
    announce(el, MOVING, { bytes: Number(range.value) });
  });
  // A key that is held, or pressed time and again, asks once: when it rests.
  let keyed = false;
  let resting = 0;
  range.addEventListener("keydown", () => (keyed = true));
  range.addEventListener("pointerdown", () => (keyed = false));
  range.addEventListener("change", () => {
    clearTimeout(resting);
    const settle = () => {
      dragging = false;
      const bytes = Number(range.value);
      announce(el, MOVING, { bytes: null, settled: bytes === model.get("budget_bytes") ? null : bytes });
      push(bytes);
    };
    if (keyed) resting = setTimeout(settle, REST_MS);
    else settle();
  });
  readout.addEventListener("input", () => {
    typing = true;
  });
  // What it means, or why it means nothing, is said by Python.
  const commit = () => {
    if (!typing) return;
    typing = false;
    const typed = readout.value;
    pull();
    model.send({ typed });
  };
  readout.addEventListener("change", commit);
  readout.addEventListener("blur", commit);
  readout.addEventListener("keydown", (event) => {
    if (event.key === "Enter") commit();
  });
  presets.addEventListener("change", () => {
    if (presets.value) push(Number(presets.value));
    presets.value = "";
  });
  // Where the budget is dragged in a picture, the handle goes along.
  const moved = ({ bytes }) => {
    if (dragging) return;
    range.value = bytes ?? model.get("budget_bytes");
    write(bytes ?? model.get("budget_bytes"));
  };
  let unhear = null;
  model.on("change", pull);
  model.on("change:marks", mark);
  mark();
  pull();
  const sized = new ResizeObserver(() => {
    unhear ??= el.isConnected ? listen(el, MOVING, moved) : null;
    thin();
  });
  sized.observe(ticks);
  return () => {
    clearTimeout(resting);
    sized.disconnect();
    unhear?.();
    model.off("change", pull);
    model.off("change:marks", mark);
  };
}

export default { initialize: keepListening, render };
