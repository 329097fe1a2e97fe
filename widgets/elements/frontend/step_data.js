// A step as numbers: what is where on the axis, and what there is to tell of a run or of a stretch of them.
const FORWARD = 0, RECOMPUTE = 1, BACKWARD = 2;
const STAGES = ["forward pass", "recomputation", "backward pass", "update"];

// Columns on an axis of `width` pixels: where each begins and ends, which is shown, the highest where many share one, and
// which share it: those from `first` to the next.
function laidOut(step, { byTime, width, whole }) {
  const ends = byTime ? step.ends_ms : step.ends;
  const count = ends.length;
  const scale = width / whole;
  const x = [0];
  const shown = [];
  const first = [0];
  if (count <= width * 1.5) {
    for (let i = 0; i < count; i += 1) {
      x.push(ends[i] * scale);
      shown.push(i);
      first.push(i + 1);
    }
    return { x, shown, first };
  }
  let best = -1;
  for (let i = 0; i < count; i += 1) {
    if (best < 0 || step.total[i] > step.total[best]) best = i;
    if (ends[i] * scale - x[x.length - 1] >= 1 || i === count - 1) {
      x.push(ends[i] * scale);
      shown.push(best);
      first.push(i + 1);
      best = -1;
    }
  }
  return { x, shown, first };
}

// The pass of each column, and how much of it is recomputation, in pixels of the strip that shows it: not none if any is.
function passesOf(step, { shown, first }) {
  return shown.map((column, i) => {
    const all = step.stages.slice(first[i], first[i + 1]);
    const again = all.reduce((sum, stage) => sum + (stage === RECOMPUTE), 0) / all.length;
    const stage = all.find((x) => x !== RECOMPUTE) ?? step.stages[column];
    return { stage, again: again && Math.max(2, Math.round(STRIP * again)) };
  });
}

function withTotals(step) {
  const count = step.ends.length;
  step.total = new Float64Array(count);
  for (const amounts of Object.values(step.bytes)) for (let i = 0; i < count; i += 1) step.total[i] += amounts[i];
  return step;
}

// Put what the kernel sent, or what lies in a page without one, where pictures and walks look for it.
function take(S, told, { step, ghost, ...rest }) {
  if (!S.step || S.step.runs !== step.runs) [S.run, S.range] = [null, null];
  Object.assign(S, rest, { model: told.model, palette: told.palette, step: withTotals(step) });
  S.ghost = ghost ? { ...ghost, step: withTotals(ghost.step) } : { label: "plain PyTorch", step: withTotals(told.plain) };
  if (S.plain && !S.ghost.held) S.ghost = null;
  S.layers = layersOf(S.step, S.model);
}

// What another step has in memory while the same operators run: it may have no such recomputations.
function alongside(step, other) {
  const place = new Map();
  other.operators.forEach((operator, i) => {
    if (other.stages[i] !== RECOMPUTE) place.set(operator, i);
  });
  const found = new Float64Array(step.ends.length);
  let last = -1;
  for (let i = 0; i < found.length; i += 1) {
    const at = step.stages[i] === RECOMPUTE ? undefined : place.get(step.operators[i]);
    if (at === undefined) {
      found[i] = i ? found[i - 1] : 0;
      continue;
    }
    found[i] = other.total[at];
    for (let j = last + 1; j < at && at - last < other.total.length / 4; j += 1) found[i] = Math.max(found[i], other.total[j]);
    last = at;
  }
  return found;
}

// The same at the same moment: whoever is quicker is further on.
function meanwhile(step, other) {
  let at = 0;
  return Float64Array.from(step.ends_ms, (end, i) => {
    const half = (end + (i ? step.ends_ms[i - 1] : 0)) / 2;
    while (at < other.ends_ms.length && other.ends_ms[at] < half) at += 1;
    return at < other.ends_ms.length ? other.total[at] : 0;
  });
}

// The layer that each column is for: a recomputation belongs to what asked for it, a sum of gradients to what was before.
function layersOf(step, model) {
  const empty = (layer) => !model.chains[layer].length;
  const own = Array.from(step.operators, (operator) => model.layer_of[operator]);
  let next = -1;
  for (let i = own.length - 1; i >= 0; i -= 1) {
    if (step.stages[i] === RECOMPUTE && next >= 0) own[i] = next;
    else if (!empty(own[i])) next = own[i];
  }
  for (let i = 1; i < own.length; i += 1) if (empty(own[i])) own[i] = own[i - 1];
  return own;
}

// Stretches of one label each, of level `level` of the layers' chains, within those that are open above.
function bandsOf(step, layers, model, { level, open }) {
  const found = [];
  for (let i = 0; i < layers.length; i += 1) {
    const chain = model.chains[layers[i]];
    const label = chain[level];
    const within = chain.slice(0, level).every((x) => open.has(x));
    const back = step.stages[i] !== FORWARD;
    const last = found[found.length - 1];
    if (label === undefined || !within) continue;
    if (last && last.label === label && last.end === i && last.back === back) last.end = i + 1;
    else found.push({ label, start: i, end: i + 1, back, more: chain.length > level + 1 });
  }
  return found;
}

// Bands of a module that is used time and again, one for each use where that has room for its name, else one for all: as
// `repeats` and `name_of_use` in scene/repeats.py. `wide` says how many characters a stretch of runs has room for.
function folded(bands, model, wide) {
  const found = [];
  const name = ({ label, back }) => (back ? -1 - label : label);
  const joined = (i) => bands[i].end === bands[i + 1].start;
  for (let at = 0; at < bands.length; ) {
    let [length, times] = [1, 1];
    for (let tried = 2; tried <= Math.min(64, (bands.length - at) / 2); tried += 1) {
      let same = at;
      while (same + tried < bands.length && name(bands[same]) === name(bands[same + tried]) && joined(same) && joined(same + tried - 1)) same += 1;
      const uses = 1 + Math.floor((same - at) / tried);
      if (uses > 1 && uses * tried > Math.max(5, length * times)) [length, times] = [tried, uses];
    }
    const all = bands.slice(at, at + length * times);
    at += all.length;
    const [start, end] = [all[0].start, all.at(-1).end];
    if (times === 1 || wide(start, end) > 5 * all.length) {
      found.push(...all);
      continue;
    }
    const labels = [...new Set(all.slice(0, length).map((x) => model.labels[x.label]))];
    const parent = sharedPath(labels);
    const told = parent || labels.slice(0, 4).join(", ") + (labels.length > 4 ? ", …" : "");
    const each = wide(start, end) / times > parent.split(".").at(-1).length && parent;
    const step = each ? length : all.length;
    for (let i = 0; i < all.length; i += step) {
      found.push({ ...all[i], end: all[i + step - 1].end, more: false, told: each ? told : `${told} ×${times}`, parent, uses: all.length / step });
    }
  }
  return found;
}
function sharedPath(labels) {
  const parts = labels.map((x) => x.split("."));
  let shared = 0;
  while (shared < Math.min(...parts.map((x) => x.length)) && parts.every((x) => x[shared] === parts[0][shared])) shared += 1;
  return parts[0].slice(0, shared).join(".");
}

const sized = (model, stay) => ({ name: model.storages[stay.storage], bytes: model.sizes[stay.storage], ...stay });
const largest = (found) => found.sort((a, b) => b.bytes - a.bytes);
function stay(step, i) {
  const [storage, start, end, category] = step.stays;
  return { storage: storage[i], start: start[i], end: end[i], category: category[i] };
}

// What runs, what it makes, brings back and lets go, and what that costs.
function storyOf(step, model, run) {
  const operator = step.operators[run];
  const [appears, returns, vanishes] = [[], [], []];
  const seen = new Set();
  const [storages, starts, ends] = step.stays;
  for (let i = 0; i < starts.length; i += 1) {
    if (starts[i] === run) (seen.has(storages[i]) ? returns : appears).push(sized(model, stay(step, i)));
    if (starts[i] <= run) seen.add(storages[i]);
    if (ends[i] === run && run < step.runs - 1) vanishes.push(sized(model, stay(step, i)));
  }
  [appears, returns, vanishes].forEach(largest);
  const stage = step.stages[run];
  const took = step.ends_ms[run] - (run ? step.ends_ms[run - 1] : 0);
  const layer = model.layers[model.layer_of[operator]];
  const name = model.operators[operator];
  const way = step.ways[run] ? ` (${step.ways[run]})` : "";
  const made = [...appears, ...returns];
  const size = made.reduce((sum, x) => sum + x.bytes, 0);
  let does = `${name}${way} takes ${milliseconds(took)}`;
  if (stage === RECOMPUTE) {
    let next = run;
    while (next < step.runs - 1 && step.stages[next] === RECOMPUTE) next += 1;
    const wanted = model.operators[step.operators[next]];
    const what = made.length ? made[0].name : name;
    does = `recomputes ${what}${way} for ${wanted}: kept would have been ${told(size)}, made again ${milliseconds(took)}`;
  }
  return { run, stage, layer, does, took, appears, returns, vanishes, bytes: step.total[run] };
}

// What is alive all along a stretch of runs, what only passes, and what the stretch costs.
function stretchOf(step, model, first, last) {
  const [storages, starts, ends] = step.stays;
  const [through, part] = [[], []];
  for (let i = 0; i < starts.length; i += 1) {
    if (starts[i] > last || ends[i] < first) continue;
    (starts[i] <= first && ends[i] >= last ? through : part).push(sized(model, stay(step, i)));
  }
  [through, part].forEach(largest);
  let [again, high] = [0, first];
  for (let i = first; i <= last; i += 1) {
    if (step.stages[i] === RECOMPUTE) again += step.ends_ms[i] - (i ? step.ends_ms[i - 1] : 0);
    if (step.total[i] > step.total[high]) high = i;
  }
  const took = step.ends_ms[last] - (first ? step.ends_ms[first - 1] : 0);
  return { first, last, through, part, took, again, high: step.total[high], share: took / step.time_ms };
}
