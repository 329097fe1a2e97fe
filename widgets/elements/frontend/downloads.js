// Buttons that download: the kernel says what is in a file; pictures of plots are made here, by plotly.
const shared = (globalThis.scheduleExplorerPlots ??= (() => {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
})());
const SCALE = 2; // of a bitmap: for print
const paper = ({ font }) => ({ paper_bgcolor: "#ffffff", font: { ...font, color: "#222222" } });

function save(name, url) {
  const link = document.createElement("a");
  link.download = name;
  link.href = url;
  document.body.append(link);
  link.click();
  link.remove();
}

async function picture({ name, kind, figure, width }) {
  const plotly = await (await shared.promise)();
  const { data, layout } = JSON.parse(figure);
  const size = { width, height: layout.height ?? 400, format: kind, scale: kind === "png" ? SCALE : 1 };
  save(name, await plotly.toImage({ data, layout: { ...layout, ...paper(layout) } }, size));
}

function render({ model, el }) {
  el.classList.add("schedule-explorer-export");
  const view = String(Math.random()); // a message reaches all views, and one of them asked for the file
  const said = document.createElement("p");
  said.setAttribute("role", "status");
  const pull = () => {
    const groups = model.get("groups").map(({ title, buttons }) => {
      const group = document.createElement("fieldset");
      const legend = document.createElement("legend");
      legend.textContent = title;
      legend.hidden = !title;
      const made = buttons.map(({ key, label, name }) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "jupyter-button widget-button";
        button.textContent = label;
        button.setAttribute("aria-label", name);
        button.title = name;
        button.disabled = model.get("disabled");
        button.addEventListener("click", () => model.send({ wanted: key, view }));
        return button;
      });
      group.append(legend, ...made);
      return group;
    });
    el.replaceChildren(...groups, said);
  };
  const receive = async (message) => {
    if (message.view !== view) return;
    try {
      if (message.figure !== undefined) {
        await picture(message);
      } else {
        const url = URL.createObjectURL(new Blob([message.content], { type: message.type }));
        save(message.name, url);
        setTimeout(() => URL.revokeObjectURL(url), 60000);
      }
      said.textContent = `Saved ${message.name} where this browser puts downloads.`;
    } catch (error) {
      said.textContent = `${message.name} could not be made: ${error.message ?? error}`;
    }
  };
  model.on("change", pull);
  model.on("msg:custom", receive);
  pull();
  return () => {
    model.off("change", pull);
    model.off("msg:custom", receive);
  };
}

export default { initialize: keepListening, render };
