// What favourite places are called.

import { compass, distance } from "./format.js";
import { t } from "./i18n.js";
import { bearing, metresBetween } from "./tracks.js";

/** @import { Place } from "./types/api.js" */
/** @typedef {Place & {title: string}} TitledPlace */

/**
 * Give each place a title that no other one has: home and work, the name that its user gave, or as
 * much of its address as tells it from the others, and at last where it lies from its namesake.
 * @param {Place[]} places the most important first
 * @returns {TitledPlace[]}
 */
export function titled(places) {
  const titles = places.map((place) => label(place) ?? parts(place)[0] ?? t("place.unnamed"));
  for (let used = 2; used <= 3; used += 1) {
    places.forEach((place, index) => {
      if (label(place) !== null || titles.filter((title) => title === titles[index]).length < 2) return;
      const more = parts(place).slice(0, used).join(", ");
      const others = places.filter((other, at) => at !== index && parts(other).slice(0, used).join(", ") === more);
      // A town that all of them share tells nothing.
      if (more && !others.length) titles[index] = more;
    });
  }
  return places.map((place, index) => {
    const title = titles[index] ?? "";
    const first = places[titles.indexOf(title)];
    if (!first || first === place) return { ...place, title };
    return { ...place, title: t("place.away_from_namesake", { title, distance: distance(metresBetween(first, place)), direction: compass(bearing(first, place)) }) };
  });
}

/**
 * @param {Place} place
 * @returns {string | null} null where only the address tells
 */
function label(place) {
  if (place.label === "home") return t("place.home");
  if (place.label === "work") return t("place.work");
  return place.named_by === "user" || !place.address ? place.name : null;
}

/** @param {Place} place */
function parts(place) {
  return place.address?.split(", ") ?? (place.name ? [place.name] : []);
}

/** @param {{label: string | null}} place */
export function iconOf(place) {
  return place.label === "home" || place.label === "work" ? place.label : "pin";
}
