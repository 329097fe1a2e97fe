// Walking through a step: buttons, the sentence of the run, and what comes and goes.
const WHOLE_MS = 24_000; // from one end to the other
const LINGER = 5; // so much longer at a recomputation
const NAMED = 4; // tensors in a line

function walker(S, { redraw, changed }) {
  const button = (text, label) => {
    const made = html("button", { type: "button", textContent: text, title: label });
    made.setAttribute("aria-label", label);
    return made;
  };
  const [back, play, on] = [button("◀", "One run back"), button("▶ Walk through the step", "Walk through the step"), button("▶", "One run on")];
  play.className = "play";
  const axis = html("select", { title: "What the axis counts" }, html("option", { value: "", textContent: "by operator" }), html("option", { value: "time", textContent: "by time" }));
  axis.setAttribute("aria-label", "Axis of the timeline");
  const off = button("✕", "Leave the walk");
  const where = html("span", { className: "where" });
  const card = html("div", { className: "card", hidden: true });
  card.setAttribute("role", "status");
  const bar = html("div", { className: "walk" }, play, back, on, off, where, axis);
  const box = html("div", { className: "schedule-explorer-walk" }, bar, card);

  let frame = 0;
  let due = 0;
  const playing = () => frame !== 0;
  const stop = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    told();
  };
  const move = (run) => {
    S.run = Math.max(0, Math.min(S.step.runs - 1, run));
    S.range = null;
    redraw();
    told();
    changed?.();
  };
  const each = () => WHOLE_MS / (S.step.runs + (LINGER - 1) * S.step.stages.reduce((n, x) => n + (x === RECOMPUTE), 0));
  const tick = (time) => {
    if (S.run >= S.step.runs - 1) return stop();
    frame = requestAnimationFrame(tick);
    if (!due) due = time;
    let run = S.run;
    while (due <= time && run < S.step.runs - 1) {
      run += 1;
      due += each() * (S.step.stages[run] === RECOMPUTE ? LINGER : 1);
    }
    if (run !== S.run) move(run);
  };
  const start = () => {
    if (S.run === null || S.run >= S.step.runs - 1) S.run = 0;
    due = 0;
    frame = requestAnimationFrame(tick);
    move(S.run);
  };

  const chips = (sign, word, found) => {
    if (!found.length) return [];
    const more = found.length > NAMED ? ` and ${found.length - NAMED} more` : "";
    const line = html("div", { className: "chips" }, html("span", { className: `sign ${word}`, textContent: sign }), `${word} `);
    found.slice(0, NAMED).forEach((x) => line.append(html("span", { className: "chip", textContent: `${x.name} ${toldBytes(x.bytes)}` })));
    if (more) line.append(more);
    return [line];
  };
  const toldBytes = (bytes) => (bytes < 1024 ? `${Math.round(bytes)} B` : amount(bytes, unitFor(bytes)));

  const ofRun = () => {
    const story = storyOf(S.step, S.model, S.run);
    where.textContent = `run ${S.run + 1} of ${S.step.runs} · ${STAGES[story.stage]} · ${amount(story.bytes, S.unit)}`;
    card.replaceChildren(
      html("div", { className: `does s${story.stage}` }, html("strong", { textContent: story.layer }), ` ${story.does}`),
      ...chips("+", "appears", story.appears),
      ...chips("↺", "returns", story.returns),
      ...chips("−", "vanishes", story.vanishes),
    );
  };
  const ofRange = () => {
    const found = stretchOf(S.step, S.model, ...S.range);
    const sum = (of) => of.reduce((total, x) => total + x.bytes, 0);
    where.textContent = `runs ${found.first + 1} to ${found.last + 1} · ${milliseconds(found.took)}, ${(100 * found.share).toFixed(1)} % of the step`;
    const again = found.again ? `, of which ${milliseconds(found.again)} recompute` : "";
    card.replaceChildren(
      html("div", { className: "does" }, `These runs take ${milliseconds(found.took)}${again}; at most ${toldBytes(found.high)} is in memory.`),
      ...chips("=", "alive all along", found.through),
      ...chips("~", "come or go", found.part),
      html("div", { className: "chips", textContent: `All along: ${found.through.length} tensors, ${toldBytes(sum(found.through))}; for a part: ${found.part.length}, ${toldBytes(sum(found.part))} in all.` }),
    );
  };
  function told() {
    const there = S.step && !S.preview && (S.run !== null || S.range !== null);
    for (const x of [back, on]) x.hidden = S.run === null;
    off.hidden = card.hidden = where.hidden = !there;
    play.textContent = playing() ? "❚❚ Pause" : S.run === null ? "▶ Walk through the step" : "▶ Go on";
    play.setAttribute("aria-label", playing() ? "Pause the walk" : "Walk through the step");
    play.disabled = axis.disabled = !S.step;
    card.setAttribute("aria-live", playing() ? "off" : "polite");
    if (there && S.range) ofRange();
    else if (there) ofRun();
    box.classList.toggle("there", Boolean(there));
  }
  const leave = () => {
    stop();
    [S.run, S.range] = [null, null];
    redraw();
    told();
    changed?.();
  };
  play.addEventListener("click", () => (playing() ? stop() : start()));
  back.addEventListener("click", () => (stop(), move(S.run - 1)));
  on.addEventListener("click", () => (stop(), move(S.run + 1)));
  off.addEventListener("click", leave);
  axis.addEventListener("change", () => {
    S.byTime = axis.value === "time";
    redraw(true);
  });
  told();
  return { box, told, move, stop, start, leave, axis };
}
