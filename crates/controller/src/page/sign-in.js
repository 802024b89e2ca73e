"use strict";
// Signs in with the token of a link, /#token=SECRET: browsers keep that part of a URL to themselves.
(() => {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", "/");
  document.getElementById("token").value = token;
  document.getElementById("sign-in").submit();
})();
