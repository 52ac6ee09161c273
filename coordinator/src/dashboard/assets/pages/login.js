// Sign-in page: exchanges a token for a session cookie that scripts cannot read.

import { signIn } from "../api.js";
import { formField } from "../dialogs.js";
import { h, setChildren } from "../dom.js";
import { renderProse } from "../format.js";

/** The page to open after sign-in; only URLs of the dashboard are accepted. */
function nextUrl(query) {
  const requested = query.get("next") ?? "";
  return requested.startsWith("/ui/") && !requested.startsWith("/ui/login") ? requested : "/ui/";
}

export function open(main, { query }) {
  const errorLine = h("p", { class: "error", role: "alert" });
  const tokenField = formField("Token", "token", { type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const submit = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token");
    try {
      setChildren(errorLine);
      await signIn(token);
      dispatchEvent(new CustomEvent("docket:signed-in", { detail: nextUrl(query) }));
    } catch (error) {
      setChildren(errorLine, renderProse(error.message));
      tokenField.querySelector("input").select();
    }
  };
  setChildren(
    main,
    h(
      "section",
      { class: "login", "aria-labelledby": "login-title" },
      h("h1", { id: "login-title" }, "Sign in to docket"),
      h("form", { on: { submit } }, tokenField, errorLine, h("button", { type: "submit", class: "primary" }, "Sign in")),
      h(
        "p",
        { class: "hint" },
        "On the coordinator's machine, ",
        h("code", {}, "docket dashboard"),
        " opens this page signed in. For other people, create a token with ",
        h("code", {}, "docket token create --name you --role read"),
        "; with the role ",
        h("code", {}, "submit"),
        ", they can also change tasks.",
      ),
    ),
  );
  main.querySelector("input").focus();
}
