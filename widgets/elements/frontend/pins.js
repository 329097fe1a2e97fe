// What someone decided instead of the solver, one by one, each with a button that gives it back.
function render({ model, el }) {
  el.classList.add("schedule-explorer-pins");
  const pull = () => {
    const items = model.get("items").map(([name, choice]) => {
      const label = `${name}: ${choice}`;
      const item = document.createElement("span");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "✕";
      button.title = `Let the solver decide again: ${label}`;
      button.setAttribute("aria-label", button.title);
      button.addEventListener("click", () => model.send({ dropped: [name, choice] }));
      item.className = "chip";
      item.append(label, button);
      return item;
    });
    el.hidden = !items.length;
    el.replaceChildren(...(items.length ? ["Pinned:", ...items] : []));
  };
  model.on("change:items", pull);
  pull();
  return () => model.off("change:items", pull);
}

export default { initialize: keepListening, render };
