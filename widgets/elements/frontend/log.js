// Lines in an element that stays: it keeps the focus, a selection and the place, unless that is the end, which moves on.
const NEAR_PX = 4;

function render({ model, el }) {
  el.classList.add("schedule-explorer-log");
  const lines = document.createElement("pre");
  lines.className = "log";
  lines.tabIndex = 0;
  lines.setAttribute("role", "log");
  lines.setAttribute("aria-label", model.get("label"));
  el.append(lines);

  let atEnd = true;
  const follow = () => {
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  };
  const pull = () => {
    const before = lines.textContent;
    const text = model.get("text");
    if (text.startsWith(before)) lines.append(text.slice(before.length));
    else lines.textContent = text;
    follow();
  };
  lines.addEventListener("scroll", () => {
    atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < NEAR_PX;
  });
  // What came while its tab was closed could not be scrolled to.
  const sized = new ResizeObserver(follow);
  sized.observe(lines);
  model.on("change:text", pull);
  pull();
  return () => {
    sized.disconnect();
    model.off("change:text", pull);
  };
}

export default { initialize: keepListening, render };
