// A table whose rows can be chosen: the first cell of a row with a key is a button. Before that of a row that stands for
// others is one that unfolds them; what was unfolded stays so when the rows are filled anew.
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
  // A long path breaks after its dots, rather than push the last columns out of sight.
  const value = (content) => {
    const made = cell("td", content);
    const parts = made.textContent.split(/(?<=\.)(?=[a-z_])/i);
    if (parts.length < 3) return made;
    made.className = "path";
    made.replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]));
    return made;
  };
  const unfolded = new Set();
  const nameOf = ({ key, cells }) => [key, ...cells.slice(0, 2)].join("\n");
  const unfold = (row) => {
    const name = nameOf(row);
    const button = cell("button", unfolded.has(name) ? "▾" : "▸");
    button.type = "button";
    button.className = "unfold";
    button.setAttribute("aria-label", `${row.folded.length} rows: ${row.cells[0]}`);
    button.setAttribute("aria-expanded", String(unfolded.has(name)));
    button.addEventListener("click", () => {
      if (!unfolded.delete(name)) unfolded.add(name);
      pull();
    });
    return button;
  };
  const lines = (row) => [line(row), ...(unfolded.has(nameOf(row)) ? (row.folded ?? []).map((x) => line(x, true)) : [])];
  const line = (content, below = false) => {
    const { key, cells, folded = [] } = content;
    const row = document.createElement("tr");
    const chosen = key !== "" && [key, ...folded.map((x) => x.key)].some((x) => model.get("selected").includes(x));
    row.className = `${chosen ? "selected" : ""} ${below ? "below" : ""}`;
    const head = cell("th", key === "" ? cells[0] : "", "row");
    if (folded.length) head.append(unfold(content));
    if (key !== "") {
      const button = cell("button", cells[0]);
      button.type = "button";
      button.setAttribute("aria-pressed", String(chosen));
      button.addEventListener("click", () => model.send({ picked: key }));
      head.append(button);
    }
    row.append(head, ...cells.slice(1).map(value));
    return row;
  };
  const pull = () => {
    const head = document.createElement("thead");
    const names = document.createElement("tr");
    names.append(...model.get("columns").map((name) => cell("th", name, "col")));
    head.append(names);
    const body = document.createElement("tbody");
    body.append(...model.get("rows").flatMap(lines));
    const held = document.activeElement?.closest("tr");
    const focused = held && table.contains(held) ? [...held.parentNode.children].indexOf(held) : -1;
    const which = focused < 0 ? 0 : [...held.querySelectorAll("button")].indexOf(document.activeElement);
    summary.textContent = model.get("title");
    table.replaceChildren(...(fold ? [] : [cell("caption", model.get("title"))]), head, body);
    // Whoever chose a row by keyboard goes on from there.
    if (focused >= 0) body.children[focused]?.querySelectorAll("button")[which]?.focus();
  };
  model.on("change", pull);
  pull();
  return () => model.off("change", pull);
}

export default { initialize: keepListening, render };
