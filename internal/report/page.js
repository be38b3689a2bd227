
document.querySelectorAll(".chart").forEach((box, i) => spillwayCharts.show(box, charts[i]));
