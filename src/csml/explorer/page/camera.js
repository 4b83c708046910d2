// Where the unit square of the map lies on the screen: screen = map × scale + (left, top), in CSS pixels.
const CLOSEST = 400, WIDEST = 0.3;

export class Camera {
  constructor() { this.width = this.height = 1; this.fit(); }

  resize(width, height) {
    const middle = this.toMap(this.width / 2, this.height / 2), factor = Math.min(width, height) / Math.min(this.width, this.height);
    this.width = width; this.height = height;
    this.scale *= factor;
    this.left = width / 2 - middle[0] * this.scale; this.top = height / 2 - middle[1] * this.scale;
  }

  get unit() { return Math.min(this.width, this.height) * 0.94; }

  fit() {
    this.scale = this.unit;
    this.left = (this.width - this.scale) / 2; this.top = (this.height - this.scale) / 2;
  }

  move(dx, dy) { this.left += dx; this.top += dy; }

  zoom(factor, sx = this.width / 2, sy = this.height / 2) {
    const scale = Math.min(this.unit * CLOSEST, Math.max(this.unit * WIDEST, this.scale * factor)), real = scale / this.scale;
    this.left = sx - (sx - this.left) * real; this.top = sy - (sy - this.top) * real;
    this.scale = scale;
  }

  centre(x, y) { this.left = this.width / 2 - x * this.scale; this.top = this.height / 2 - y * this.scale; }

  toMap(sx, sy) { return [(sx - this.left) / this.scale, (sy - this.top) / this.scale]; }

  toScreen(x, y) { return [x * this.scale + this.left, y * this.scale + this.top]; }
}
