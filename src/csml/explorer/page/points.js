// Draws up to a million points with one call of WebGL, or slower on a plain canvas where there is no WebGL.
const VERTEX = `#version 300 es
in float x; in float y; in vec4 color; in float look;
uniform vec2 view; uniform vec3 camera; uniform float size;
out vec4 fill; flat out int shape; flat out int chosen;
void main() {
  int code = int(look + 0.5);
  shape = code % 8; chosen = (code / 8) % 2; int marked = (code / 16) % 2;
  vec2 place = (vec2(x, y) * camera.x + camera.yz) / view * 2.0 - 1.0;
  fill = color;
  float front = chosen == 1 ? 0.0 : marked == 1 ? 0.2 : 0.5;
  gl_Position = color.a == 0.0 ? vec4(2.0, 2.0, 2.0, 1.0) : vec4(place.x, -place.y, front, 1.0);
  gl_PointSize = size * (chosen == 1 ? 1.5 : marked == 1 ? 1.35 : 1.0);
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 fill; flat in int shape; flat in int chosen; uniform vec3 ink; out vec4 result;
float outside(vec2 p) {
  vec2 a = abs(p);
  if (shape == 1) return max(a.x, a.y) - 0.8;
  if (shape == 2) return max(a.x * 0.9 - (p.y + 0.8) * 0.45, p.y - 0.7);
  if (shape == 3) return a.x + a.y - 1.0;
  if (shape == 4) return max(min(a.x, a.y) - 0.3, max(a.x, a.y) - 0.95);
  if (shape == 5) { vec2 t = abs(vec2(p.x + p.y, p.x - p.y)) * 0.707; return max(min(t.x, t.y) - 0.28, max(t.x, t.y) - 0.95); }
  if (shape == 6) return abs(length(p) - 0.65) - 0.28;
  return length(p) - 0.9;
}
void main() {
  float d = outside(gl_PointCoord * 2.0 - 1.0);
  if (d > 0.0) { if (chosen == 1 && d < 0.25) { result = vec4(ink, 1.0); return; } discard; }
  result = vec4(fill.rgb * fill.a, fill.a);
}`;

export class Points {
  constructor(canvas) {
    this.canvas = canvas;
    this.gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true });
    this.plain = this.gl ? null : canvas.getContext("2d");
    if (this.gl) this.prepare();
  }

  prepare() {
    const gl = this.gl, program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text); gl.compileShader(shader); gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    gl.useProgram(program);
    this.at = Object.fromEntries(["view", "camera", "size", "ink"].map((name) => [name, gl.getUniformLocation(program, name)]));
    const kinds = { x: [1, gl.FLOAT, false], y: [1, gl.FLOAT, false], color: [4, gl.UNSIGNED_BYTE, true], look: [1, gl.UNSIGNED_BYTE, false] };
    this.buffers = {};
    for (const [name, [values, type, scaled]] of Object.entries(kinds)) {
      const place = gl.getAttribLocation(program, name);
      this.buffers[name] = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, values, type, scaled, 0, 0);
    }
    gl.enable(gl.BLEND); gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.enable(gl.DEPTH_TEST); gl.depthFunc(gl.LEQUAL);
  }

  // values: any of x, y (Float32Array), color (Uint8Array, 4 each), look (Uint8Array: shape + 8 selected + 16 labelled)
  set(values) {
    Object.assign(this, values);
    if (!this.gl) return;
    for (const [name, array] of Object.entries(values)) {
      this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]);
      this.gl.bufferData(this.gl.ARRAY_BUFFER, array, this.gl.DYNAMIC_DRAW);
    }
  }

  // camera: scale and offset in CSS pixels; size of a point in CSS pixels; ink: [r, g, b] of outlines, 0 to 255
  draw(camera, size, ink) {
    const ratio = this.canvas.width / this.canvas.clientWidth;
    if (!this.gl) { this.drawPlain(camera, size, ratio); return; }
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(0, 0, 0, 0); gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.uniform2f(this.at.view, this.canvas.width, this.canvas.height);
    gl.uniform3f(this.at.camera, camera.scale * ratio, camera.left * ratio, camera.top * ratio);
    gl.uniform1f(this.at.size, Math.max(2, size * ratio));
    gl.uniform3f(this.at.ink, ink[0] / 255, ink[1] / 255, ink[2] / 255);
    gl.drawArrays(gl.POINTS, 0, this.x.length);
  }

  drawPlain(camera, size, ratio) {
    const { plain, x, y, color, look } = this;
    plain.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (let id = 0; id < x.length; id++) {
      if (!color[4 * id + 3]) continue;
      plain.fillStyle = `rgba(${color[4 * id]},${color[4 * id + 1]},${color[4 * id + 2]},${color[4 * id + 3] / 255})`;
      const side = size * ratio * (look[id] & 24 ? 1.5 : 1);
      plain.fillRect((x[id] * camera.scale + camera.left) * ratio - side / 2, (y[id] * camera.scale + camera.top) * ratio - side / 2, side, side);
    }
  }
}
