// Sign in: a token, once. The coordinator answers with a cookie that no script can read.

import { signIn } from "../api.js";
import { field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { prose } from "../format.js";

/** An address of the dashboard's own, whatever the query says. */
function next(query) {
  const asked = query.get("next") ?? "";
  return asked.startsWith("/ui/") && !asked.startsWith("/ui/login") ? asked : "/ui/";
}

export function open(main, { query }) {
  const wrong = h("p", { class: "wrong", role: "alert" });
  const input = field("Token", "token", { type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const submit = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token");
    try {
      fill(wrong);
      await signIn(token);
      dispatchEvent(new CustomEvent("docket:signed-in", { detail: next(query) }));
    } catch (error) {
      fill(wrong, prose(error.message));
      input.querySelector("input").select();
    }
  };
  fill(
    main,
    h(
      "section",
      { class: "login", "aria-labelledby": "login-title" },
      h("h1", { id: "login-title" }, "Sign in to docket"),
      h("form", { on: { submit } }, input, wrong, h("button", { type: "submit", class: "primary" }, "Sign in")),
      h(
        "p",
        { class: "hint" },
        "On the coordinator's machine ",
        h("code", {}, "docket dashboard"),
        " opens this page signed in. For others, ",
        h("code", {}, "docket token create --name you --role read"),
        " makes a token; role ",
        h("code", {}, "submit"),
        " may also change tasks.",
      ),
    ),
  );
  main.querySelector("input").focus();
}
