"use strict";
// The slider over two pictures: the later survey is shown to the right of it.
const slider = document.getElementById("slider");
function show() {
  const share = slider.value / 10;
  document.getElementById("after").style.clipPath = `inset(0 0 0 ${share}%)`;
  document.getElementById("divider").style.left = `${share}%`;
}
slider.addEventListener("input", show);
show();
document.documentElement.setAttribute("data-ready", "yes");
