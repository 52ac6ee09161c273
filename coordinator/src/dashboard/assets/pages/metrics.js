// How well tasks went, against the targets.
import { fill, h } from "../dom.js";

export async function open(main) {
  fill(main, h("h1", {}, "Metrics"));
}
