// Which points are near a place or inside a shape: points of a unit square in the cells of a grid.
const PER_CELL = 8;

export class Spatial {
  // x, y: Float32Array of values within [0, 1]
  constructor(x, y) {
    this.x = x; this.y = y;
    this.side = Math.max(1, Math.min(2048, Math.round(Math.sqrt(x.length / PER_CELL))));
    const cells = this.side * this.side, of = new Uint32Array(x.length);
    this.starts = new Uint32Array(cells + 1);
    for (let id = 0; id < x.length; id++) { of[id] = this.row(y[id]) * this.side + this.row(x[id]); this.starts[of[id] + 1]++; }
    for (let cell = 0; cell < cells; cell++) this.starts[cell + 1] += this.starts[cell];
    const next = this.starts.slice(0, cells);
    this.ids = new Uint32Array(x.length); // sorted by cell
    for (let id = 0; id < x.length; id++) this.ids[next[of[id]]++] = id;
  }

  row(value) { return Math.max(0, Math.min(this.side - 1, Math.floor(value * this.side))); }

  // The nearest point within a distance that `wanted` accepts; −1 if there is none.
  nearest(px, py, distance, wanted) {
    let best = -1, least = distance * distance;
    this.eachIn(px - distance, py - distance, px + distance, py + distance, (id) => {
      const far = (this.x[id] - px) ** 2 + (this.y[id] - py) ** 2;
      if (far <= least && wanted(id)) { least = far; best = id; }
    });
    return best;
  }

  // Calls `visit` for every point in the cells that a rectangle touches, and so for some outside of it.
  eachIn(left, top, right, bottom, visit) {
    for (let row = this.row(top); row <= this.row(bottom); row++) {
      const from = this.starts[row * this.side + this.row(left)], to = this.starts[row * this.side + this.row(right) + 1];
      for (let at = from; at < to; at++) visit(this.ids[at]);
    }
  }

  // Ids inside a polygon [[x, y], …], by the even-odd rule. Only points in cells that an edge crosses are tested one by one.
  inside(polygon) {
    const found = [], side = this.side, crossed = this.crossed(polygon);
    const xs = polygon.map((point) => point[0]), ys = polygon.map((point) => point[1]);
    const [left, right] = [this.row(Math.min(...xs)), this.row(Math.max(...xs))];
    for (let row = this.row(Math.min(...ys)); row <= this.row(Math.max(...ys)); row++) {
      let known = null; // whether the cells since the last crossed one are inside
      for (let column = left; column <= right; column++) {
        const cell = row * side + column, from = this.starts[cell], to = this.starts[cell + 1];
        if (crossed.has(cell)) {
          known = null;
          for (let at = from; at < to; at++) if (contains(polygon, this.x[this.ids[at]], this.y[this.ids[at]])) found.push(this.ids[at]);
          continue;
        }
        if (known === null) known = contains(polygon, (column + 0.5) / side, (row + 0.5) / side);
        if (known) for (let at = from; at < to; at++) found.push(this.ids[at]);
      }
    }
    return found;
  }

  // Cells that an edge of the polygon touches; points exactly on the border of the square are in its outer cells.
  crossed(polygon) {
    const cells = new Set(), side = this.side;
    for (let at = 0; at < polygon.length; at++) {
      let [x1, y1] = polygon[at], [x2, y2] = polygon[(at + 1) % polygon.length];
      if (y1 > y2) [x1, y1, x2, y2] = [x2, y2, x1, y1];
      for (let row = this.row(y1); row <= this.row(y2); row++) {
        const low = row === 0 ? y1 : Math.max(y1, row / side), high = row === side - 1 ? y2 : Math.min(y2, (row + 1) / side);
        const slope = y2 > y1 ? (x2 - x1) / (y2 - y1) : 0;
        const ends = y2 > y1 ? [x1 + (low - y1) * slope, x1 + (high - y1) * slope] : [x1, x2];
        for (let column = this.row(Math.min(...ends) - 1e-9); column <= this.row(Math.max(...ends) + 1e-9); column++) cells.add(row * side + column);
      }
    }
    return cells;
  }
}

export function contains(polygon, px, py) {
  let inside = false;
  for (let at = 0, before = polygon.length - 1; at < polygon.length; before = at++) {
    const [x1, y1] = polygon[at], [x2, y2] = polygon[before];
    if (y1 > py !== y2 > py && px < ((x2 - x1) * (py - y1)) / (y2 - y1) + x1) inside = !inside;
  }
  return inside;
}
