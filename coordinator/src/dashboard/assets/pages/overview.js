// What happened, what needs a person, what it cost.
import { fill, h } from "../dom.js";

export async function open(main) {
  fill(main, h("h1", {}, "Overview"));
}
