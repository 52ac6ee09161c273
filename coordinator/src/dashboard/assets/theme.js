// Applies the user's theme before the first paint. Without a choice, the page follows the system.
(function () {
  "use strict";
  var choice = null;
  try {
    choice = localStorage.getItem("docket-theme");
  } catch (_) {
    // Without storage the page follows the system.
  }
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
})();
