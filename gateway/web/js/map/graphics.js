// What layers that draw by themselves keep on the graphics card.

/**
 * @typedef {object} Graphics
 * @property {WebGLProgram} program
 * @property {WebGLBuffer} buffer
 * @property {WebGLVertexArrayObject} array
 * @property {Record<string, WebGLUniformLocation | null>} uniforms
 */

/**
 * Link a program, and ask for its uniforms once: each question waits until all is drawn.
 * @param {WebGL2RenderingContext} gl
 * @param {string} vertex
 * @param {string} fragment
 * @param {string[]} attributes in the order of their places
 * @param {string[]} names of uniforms
 */
export function linked(gl, vertex, fragment, attributes, names) {
  const program = gl.createProgram();
  for (const [type, source] of /** @type {const} */ ([[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]])) {
    const shader = gl.createShader(type);
    if (!shader) throw new Error("the graphics context is lost");
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? "");
    gl.attachShader(program, shader);
  }
  attributes.forEach((name, index) => gl.bindAttribLocation(program, index, name));
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) ?? "");
  /** @type {Record<string, WebGLUniformLocation | null>} */
  const uniforms = {};
  for (const name of names) uniforms[name] = gl.getUniformLocation(program, name);
  return { program, uniforms };
}

/**
 * @param {WebGL2RenderingContext} gl
 * @param {Graphics} graphics
 */
export function release(gl, graphics) {
  gl.deleteBuffer(graphics.buffer);
  gl.deleteVertexArray(graphics.array);
  gl.deleteProgram(graphics.program);
}
