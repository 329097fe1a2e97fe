"""Our own widgets in an empty page, without a kernel: what they draw of a state that a kernel seldom has for long."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page

from widgets.elements.frontend_file import frontend_file, widget_script

_MOUNT = """([script, state, width]) => {
  const heard = {};
  const model = {
    get: (name) => state[name],
    set: (name, value) => (state[name] = value),
    save_changes: () => {},
    send: (content) => (window.sent = [...(window.sent ?? []), content]),
    on: (name, call) => (heard[name] = [...(heard[name] ?? []), call]),
    off: () => {},
  };
  const box = document.querySelector("#here");
  box.style.width = `${width}px`;
  const el = document.createElement("div");
  box.replaceChildren(el);
  window.sent = [];
  const widget = new Function(script.replace("export default", "return"))();
  widget.render({ model, el });
  window.tell = (content) => (heard["msg:custom"] ?? []).forEach((call) => call(content));
  window.change = (more) => {
    Object.assign(state, more);
    const names = [...Object.keys(more).map((x) => `change:${x}`), "change"];
    names.flatMap((x) => heard[x] ?? []).forEach((call) => call());
  };
}"""


def empty_page(page: Page) -> None:
    """The explorer's look, and a place for a widget."""
    page.set_content("<!doctype html><div class='schedule-explorer'><div id='here' style='width: 700px'></div></div>")
    page.add_style_tag(content=frontend_file("style.css"))


def mounted(page: Page, *files: str, state: dict[str, Any], width: int = 700) -> Locator:
    """A widget of these scripts, in place of the one before.

    ``window.change`` gives it another state, ``window.tell`` a message.
    """
    page.evaluate(_MOUNT, [widget_script(*files), state, width])
    return page.locator("#here")
