// The cells of a matrix, by keyboard: it has no element for each of them, so one is laid over it, which arrows move; with
// shift by ten. Enter and space pick. The mouse looks through it.
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const FAR = 10; // cells
const LEAST_SIDE = 6; // pixels: less could not be seen

function cellStop(place, el) {
  const cursor = document.createElement("div");
  cursor.className = "schedule-explorer-cell";
  cursor.setAttribute("role", "button");
  cursor.hidden = true;
  let [row, column] = [0, 0];
  const matrix = () => place._fullData?.find(({ meta }) => meta?.picks && meta.rows);
  const clamped = (at, count, range) => {
    const [low, high] = [Math.min(...range), Math.max(...range)].map((x) => x + 0.5);
    return Math.max(0, Math.ceil(low - 0.01), Math.min(count - 1, Math.floor(high + 0.01) - 1, at));
  };
  const side = (axis, at) => {
    const [a, b] = [at - 0.5, at + 0.5].map((x) => axis._offset + axis.l2p(x));
    const middle = (a + b) / 2;
    const length = Math.max(LEAST_SIDE, Math.abs(b - a));
    return [middle - length / 2, length];
  };
  const settle = () => {
    const found = matrix();
    cursor.hidden = !found;
    if (!found) return null;
    const { xaxis, yaxis } = place._fullLayout;
    row = clamped(row, found.meta.rows.length, yaxis.range);
    column = clamped(column, found.meta.columns.length, xaxis.range);
    const [left, width] = side(xaxis, column);
    const [top, height] = side(yaxis, row);
    const outer = el.getBoundingClientRect();
    const inner = place.getBoundingClientRect();
    Object.assign(cursor.style, {
      left: `${inner.left - outer.left + left}px`,
      top: `${inner.top - outer.top + top}px`,
      width: `${width}px`,
      height: `${height}px`,
    });
    cursor.tabIndex = 0;
    const said = cellSaid(found, row, column, place.calcdata[found.index][0].z[row][column]);
    cursor.setAttribute("aria-label", said);
    return said;
  };
  el.append(cursor);
  return {
    cursor,
    settle,
    // What a key leads to: a text to show, or what is picked.
    press({ key, target, shiftKey }) {
      if (target !== cursor) return {};
      if (key === "Enter" || key === " ") return { picked: matrix()?.meta.picks[column] };
      if (!(key in MOVES)) return {};
      const [down, right] = MOVES[key].map((x) => x * (shiftKey ? FAR : 1));
      [row, column] = [row + down, column + right];
      return { said: settle() };
    },
  };
}

const cellSaid = ({ meta }, row, column, value) => `${meta.columns[column]}: ${meta.values[value]} at ${meta.rows[row]}`;
