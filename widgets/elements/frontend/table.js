// A table whose rows can be chosen: the first cell of a row with a key is a button.
function render({ model, el }) {
  el.classList.add("schedule-explorer-table");
  const table = document.createElement("table");
  const fold = model.get("folded") ? document.createElement("details") : null;
  const summary = document.createElement("summary");
  fold?.append(summary, table);
  el.append(fold ?? table);

  const cell = (tag, content, scope) => {
    const made = document.createElement(tag);
    if (scope) made.scope = scope;
    made.textContent = content;
    return made;
  };
  const line = ({ key, cells }) => {
    const row = document.createElement("tr");
    const chosen = key !== "" && model.get("selected").includes(key);
    row.className = chosen ? "selected" : "";
    const head = cell("th", key === "" ? cells[0] : "", "row");
    if (key !== "") {
      const button = cell("button", cells[0]);
      button.type = "button";
      button.setAttribute("aria-pressed", String(chosen));
      button.addEventListener("click", () => model.send({ picked: key }));
      head.append(button);
    }
    row.append(head, ...cells.slice(1).map((content) => cell("td", content)));
    return row;
  };
  const pull = () => {
    const head = document.createElement("thead");
    const names = document.createElement("tr");
    names.append(...model.get("columns").map((name) => cell("th", name, "col")));
    head.append(names);
    const body = document.createElement("tbody");
    body.append(...model.get("rows").map(line));
    const held = document.activeElement?.closest("tr");
    const focused = held && table.contains(held) ? [...held.parentNode.children].indexOf(held) : -1;
    summary.textContent = model.get("title");
    table.replaceChildren(...(fold ? [] : [cell("caption", model.get("title"))]), head, body);
    // Whoever chose a row by keyboard goes on from there.
    if (focused >= 0) body.children[focused]?.querySelector("button")?.focus();
  };
  model.on("change", pull);
  pull();
  return () => model.off("change", pull);
}

export default { render };
