"use strict";
/* The page's data is in D: one entry per lane with its tokens and, per layer, the cells of the timeline.  Moving over a pane
 * shows the figures under the pointer; the token that a step made is marked in the text, and back. */
const tip = document.getElementById("tip");
const marks = new Map();	/* lane -> the cursor line of its timeline */

function show(event, text) {
	tip.textContent = text;
	tip.hidden = false;
	const box = tip.getBoundingClientRect();
	tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + "px";
	tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
}

function hide() {
	tip.hidden = true;
	document.querySelectorAll(".now").forEach(e => e.classList.remove("now"));
	marks.forEach(line => line.remove());
	marks.clear();
}

function figure(v, digits) {
	return v === null || v === undefined ? "n/a" : v.toFixed(digits);
}

function fraction(rect, event) {
	const box = rect.getBoundingClientRect();
	return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

function tokenText(lane, i) {
	const t = D.lanes[lane].tokens[i];
	return `token ${i} ${JSON.stringify(t[0])}\nlog-probability ${figure(t[1], 3)}` +
		(t[2] === null ? "" : `, by full attention ${figure(t[2], 3)}`);
}

function markToken(lane, i) {
	const span = document.querySelector(`.reply[data-lane="${lane}"] span[data-i="${i}"]`);
	if (span)
		span.classList.add("now");
}

function markStep(lane, step) {
	const rect = document.querySelector(`[data-pane=timeline] .hit[data-lane="${lane}"]`);
	const cells = D.lanes[lane].cells;
	if (!rect || !cells.length)
		return;
	const n = cells[0].length, x = +rect.getAttribute("x") + (Math.floor(step / D.lanes[lane].per) + 0.5) / n * +rect.getAttribute("width");
	const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
	line.setAttribute("class", "cursor");
	line.setAttribute("d", `M${x} ${rect.getAttribute("y")}v${rect.getAttribute("height")}`);
	rect.parentNode.appendChild(line);
	marks.set(lane, line);
}

function overTimeline(rect, event) {
	const lane = +rect.dataset.lane, l = D.lanes[lane], [x, y] = fraction(rect, event);
	if (!l.cells.length)
		return;
	const layer = Math.min(l.cells.length - 1, Math.max(0, Math.floor(y * l.cells.length)));
	const column = Math.min(l.cells[0].length - 1, Math.max(0, Math.floor(x * l.cells[0].length)));
	const from = column * l.per, to = Math.min(l.steps, from + l.per) - 1, cell = l.cells[layer][column];
	const what = cell === "c" ? "checked, stayed partial" : cell === "g" ? "glance" : cell === "." ? "partial" :
		l.per === 1 ? "full" : `full in about ${cell} of 8`;
	const token = l.tokenOfStep(from);
	markStep(lane, from);
	markToken(lane, token);
	show(event, `layer ${layer}, ${from === to ? "step " + from : "steps " + from + " to " + to}: ${what}` +
		(token === undefined ? "" : "\nfed: " + tokenText(lane, token)));
}

function overRatio(rect, event) {
	const [x] = fraction(rect, event);
	const longest = Math.max(...D.lanes.map(l => l.count));
	const i = Math.min(longest - 1, Math.max(0, Math.round(x * (longest - 1))));
	const rows = D.lanes.map((l, n) => {
		const p = l.ratio[Math.floor(i / l.ratioPer)];
		return p ? `${D.lanes.length > 1 ? n + 1 + ": " : ""}${figure(p[0], 4)} so far, ${figure(p[1], 4)} over the last 64` : null;
	}).filter(Boolean);
	if (rows.length) {
		D.lanes.forEach((l, n) => markToken(n, i));
		show(event, `token ${i}\n` + rows.join("\n"));
	}
}

document.addEventListener("mousemove", event => {
	const hit = event.target.closest(".hit, .reply span");
	hide();
	if (!hit)
		return;
	if (hit.tagName === "SPAN") {
		const lane = +hit.parentNode.dataset.lane, i = +hit.dataset.i, l = D.lanes[lane];
		hit.classList.add("now");
		if (l.tokens[i][3] < l.steps)
			markStep(lane, l.tokens[i][3]);
		show(event, tokenText(lane, i) + `\nfull in ${hit.dataset.full} of ${D.layers} layers`);
	} else if (hit.dataset.tip) {
		show(event, hit.dataset.tip);
	} else if (hit.closest("[data-pane=timeline]")) {
		overTimeline(hit, event);
	} else if (hit.closest("[data-pane=ratio]")) {
		overRatio(hit, event);
	}
});
document.addEventListener("mouseleave", hide);

/* The token that a step was fed. */
for (const l of D.lanes) {
	const fed = [];
	l.tokens.forEach((t, i) => { fed[t[3]] = i; });
	l.tokenOfStep = step => fed[step];
}
