"use strict";
// Signs in with the token of a link, /#token=SECRET. Browsers do not send this part of a URL.
(() => {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", "/");
  document.getElementById("token").value = token;
  document.getElementById("sign-in").submit();
})();
