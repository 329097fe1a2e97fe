"""What a page offers to those who do not use a mouse, or do not see well."""

from __future__ import annotations

from playwright.sync_api import Locator

_NAMES = """box => {
  const controls = "button, input, select, textarea, summary, [role=tab], [role=slider], [tabindex='0']";
  const name = (x) =>
    x.getAttribute("aria-label") ||
    document.getElementById(x.getAttribute("aria-labelledby"))?.textContent.trim() ||
    [...(x.labels ?? [])].map((label) => label.textContent.trim()).join(" ") ||
    (x.closest("label")?.textContent ?? "").trim() ||
    (["INPUT", "SELECT", "TEXTAREA"].includes(x.tagName) ? "" : x.textContent.trim()) ||
    x.title || x.placeholder || "";
  return [...box.querySelectorAll(controls)]
    .filter((x) => x.getClientRects().length && !x.closest(".modebar"))
    .map((x) => [x.outerHTML.slice(0, 160), name(x)]);
}"""

_CONTRASTS = """box => {
  const parse = (text) => {
    const numbers = (text.match(/[\\d.]+/g) ?? []).map(Number);
    return text.startsWith("rgb") ? [...numbers.slice(0, 3), numbers[3] ?? 1] : [0, 0, 0, 0];
  };
  const over = ([r, g, b, a], back) => [r, g, b].map((x, i) => x * a + back[i] * (1 - a));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((x) => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (x) => {
    const layers = [];
    for (let at = x; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((back, colour) => over(colour, back), [255, 255, 255]);
  };
  const found = [];
  for (const x of box.querySelectorAll("*")) {
    const own = [...x.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    // Names in bars do not stand on the page: tests/widgets/test_style.py has the colours of both.
    if (!own || !x.getClientRects().length || x.closest(":disabled, .modebar, .bartext, style, option")) continue;
    const style = getComputedStyle(x);
    if (style.visibility === "hidden" || style.opacity === "0") continue;
    const back = background(x);
    const front = over(parse(x.closest("svg") ? style.fill : style.color), back);
    const [high, low] = [luminance(front), luminance(back)].sort((a, b) => b - a);
    found.push([x.textContent.trim().slice(0, 60), (high + 0.05) / (low + 0.05)]);
  }
  return found;
}"""

_FOCUS = """box => {
  const at = document.activeElement;
  if (!box.contains(at)) return null;
  const { outlineStyle, outlineWidth } = getComputedStyle(at);
  const html = at.outerHTML.slice(0, 160);
  at.dataset.reached = "";
  return [html, outlineStyle !== "none" && parseFloat(outlineWidth) >= 2];
}"""

# Of tabs, and of a plot's buttons, one is a stop, and arrows lead to the others.
_MISSED = """box => [...box.querySelectorAll("button, input, select, textarea, summary, [tabindex='0']")]
  .filter((x) => x.checkVisibility() && !x.disabled && !x.closest(".modebar") && !("reached" in x.dataset))
  .map((x) => x.outerHTML.slice(0, 160))"""


def walk(box: Locator, *, most: int = 300) -> tuple[list[str], list[str]]:
    """Press Tab until the focus leaves ``box``: the controls not reached, and those where it cannot be seen.

    A table that was filled anew on the way, as an answer got better, has other buttons in the place of those reached.
    """
    reached, unseen = set(), []
    for _ in range(most):
        found = box.evaluate(_FOCUS)
        if found is None:
            break
        reached.add(found[0])
        if not found[1]:
            unseen.append(found[0])
        box.page.keyboard.press("Tab")
    return [x for x in box.evaluate(_MISSED) if x not in reached], unseen


def unnamed(box: Locator) -> list[str]:
    """Visible controls without an accessible name, as HTML."""
    found: list[list[str]] = box.evaluate(_NAMES)
    assert found, "there are controls"
    return [html for html, name in found if not name]


def faint(box: Locator, *, least: float = 4.5) -> list[tuple[str, float]]:
    """Visible texts with less contrast than WCAG 2.1 (1.4.3) asks for, and theirs; what is disabled is exempt."""
    found: list[tuple[str, float]] = [(said, ratio) for said, ratio in box.evaluate(_CONTRASTS)]
    assert found, "there are texts"
    return [(said, round(ratio, 2)) for said, ratio in found if ratio < least]


_CLIPPED = """box => {
  const found = [];
  for (const x of box.querySelectorAll("button, select, .big, .note, .where, .lm-TabBar-tabLabel, td, th, p, label")) {
    const style = getComputedStyle(x);
    const scrolls = x.closest(".schedule-explorer-table, .schedule-explorer-log, svg, .modebar");
    if (!x.getClientRects().length || scrolls) continue;
    const { right } = x.getBoundingClientRect();
    const cut = style.overflow !== "visible" && x.tagName !== "SELECT" && x.scrollWidth > x.clientWidth + 1;
    if (cut || right > box.getBoundingClientRect().right + 1) found.push(x.textContent.trim().slice(0, 60));
  }
  return found;
}"""

# A text may stand at an angle: two touch where no direction of their sides parts them by more than what is left over.
_COVERED = """box => {
  const SIDEWAYS = 2, UPWARDS = 4;
  const cornersOf = (text) => {
    const { x, y, width, height } = text.getBBox();
    const matrix = text.getScreenCTM();
    return [[x, y], [x + width, y], [x + width, y + height], [x, y + height]].map(([a, b]) => [
      matrix.a * a + matrix.c * b + matrix.e, matrix.b * a + matrix.d * b + matrix.f,
    ]);
  };
  const alike = ([x, y], corners) => {
    const along = corners.map(([a, b]) => a * x + b * y);
    return [Math.min(...along), Math.max(...along)];
  };
  const sides = ([a, b, , d]) => [[b, SIDEWAYS], [d, UPWARDS]].map(([c, slack]) => {
    const length = Math.hypot(c[0] - a[0], c[1] - a[1]) || 1;
    return [[(c[0] - a[0]) / length, (c[1] - a[1]) / length], slack];
  });
  const parted = (a, b) => [...sides(a), ...sides(b)].some(([direction, slack]) => {
    const [[from, to], [since, until]] = [alike(direction, a), alike(direction, b)];
    return Math.min(to, until) - Math.max(from, since) <= slack;
  });
  const texts = [...box.querySelectorAll("text")].filter((x) => x.getClientRects().length && x.textContent.trim());
  const corners = texts.map((x) => [x.textContent, cornersOf(x)]);
  const frame = box.getBoundingClientRect();
  const found = [];
  corners.forEach(([said, a], i) => {
    const [left, right] = alike([1, 0], a);
    if (left < frame.left - 1 || right > frame.right + 1) found.push(`${said} is cut off`);
    corners.slice(i + 1).forEach(([other, b]) => {
      if (!parted(a, b)) found.push(`${said} over ${other}`);
    });
  });
  return found;
}"""


def clipped(box: Locator) -> list[str]:
    """Visible texts that are wider than what they are in, or stand out of ``box``; tables scroll."""
    return box.evaluate(_CLIPPED)


def covered(picture: Locator) -> list[str]:
    """Texts of a picture that touch one another or are cut off at its edge."""
    return picture.evaluate(_COVERED)
