// The walk in a page of its own, without a kernel and without a network: it begins by itself.
const place = document.querySelector(".schedule-explorer-timeline");
const read = (id) => table(document.getElementById(id).textContent);
const S = { step: null, ghost: null, preview: null, moving: null, run: null, range: null, byTime: false, open: new Set() };
const picture = stepPicture(place, {
  name: ({ step, unit }) => `Memory during one training step: peak ${amount(step.peak[1], unit)} of ${step.runs} runs`,
  interactive: false,
});
const walk = walker(S, { redraw: (all) => (all ? picture.draw(S) : picture.walk(S)) });
const legend = html("div", { className: "schedule-explorer-legend" });
place.append(legend, walk.box);
take(S, read("table"), read("step"));
const draw = () => picture.draw(S);
draw();
legend.replaceChildren(...picture.legend(S));
walk.told();
picture.root.addEventListener("pointerdown", (event) => {
  const band = event.target.closest("[data-more]");
  if (band) {
    const label = Number(band.dataset.band);
    if (!S.open.delete(label)) S.open.add(label);
    return draw();
  }
  const at = picture.at(event, S);
  if (!at.inside) return;
  walk.stop();
  walk.move(at.run);
  follow(event, { moved: (next) => walk.move(picture.at(next, S).run), over: () => {} });
});
new ResizeObserver(draw).observe(place);
const plays = place.closest("[data-plays]");
if (plays && !matchMedia("(prefers-reduced-motion: reduce)").matches) walk.start();
