// The theme, before the first paint: the person's choice, or what their system says.
(function () {
  "use strict";
  var choice = null;
  try {
    choice = localStorage.getItem("docket-theme");
  } catch (_) {
    // A browser that keeps nothing follows the system.
  }
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
})();
