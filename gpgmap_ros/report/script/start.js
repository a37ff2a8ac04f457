// Fill the page, in the order in which it is read.
text();
bars("timings", data.timings, (value) => `${value.toFixed(value < 10 ? 2 : 1)} s`);
bars("fates", data.fates, (value) => value.toLocaleString("en"));
drives();
closureTable();
startMap().then(() => {
  startTerrain();
  trajectorySection();
  document.documentElement.setAttribute("data-ready", "yes");
});
