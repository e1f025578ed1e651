// The views of the page. A view is a module that is loaded when it is first opened.

import { t } from "./i18n.js";
import { reloadIfUpgraded } from "./offline/registration.js";
import { fragmentOf } from "./url_state.js";

/** @import { App } from "./app.js" */
/** @import { State } from "./url_state.js" */

/**
 * @typedef {object} View what a view's module makes of the page's room
 * @property {(state: State) => void} show show what the state says; called again whenever that changes
 * @property {() => void} hide another view is shown
 */
/** @typedef {{open: (app: App, room: HTMLElement) => View}} ViewModule */
/** @typedef {"live" | "diary" | "places" | "devices" | "data" | "people" | "operations"} ViewName */

/** @type {Record<ViewName, {title: string, icon: string, load: () => Promise<ViewModule>}>} */
const VIEWS = {
  live: { title: t("view.live"), icon: "live", load: () => import("./views/live_view.js") },
  diary: { title: t("view.diary"), icon: "diary", load: () => import("./views/diary_view.js") },
  places: { title: t("view.places"), icon: "pin", load: () => import("./views/places_view.js") },
  devices: { title: t("view.devices"), icon: "devices", load: () => import("./views/devices_view.js") },
  data: { title: t("view.data"), icon: "data", load: () => import("./views/data_view.js") },
  people: { title: t("view.people"), icon: "people", load: () => import("./views/people_view.js") },
  operations: { title: t("view.operations"), icon: "operations", load: () => import("./views/operations_view.js") },
};

/**
 * @param {string} name
 * @returns {ViewName}
 */
export function known(name) {
  return name in VIEWS ? /** @type {ViewName} */ (name) : "live";
}

export class Navigation {
  /** @type {ViewName | null} */
  shown = null;
  /** @type {Map<ViewName, Promise<{view: View, room: HTMLElement}>>} */
  opened = new Map();

  /**
   * @param {App} app
   * @param {HTMLElementTagNameMap["navigation-bar"]} bar
   * @param {HTMLElement} rooms where each view gets an element of its own
   */
  constructor(app, bar, rooms) {
    this.app = app;
    this.bar = bar;
    this.rooms = rooms;
    bar.setViews(/** @type {ViewName[]} */ (Object.keys(VIEWS)).map((name) => (
      { name, title: VIEWS[name].title, icon: VIEWS[name].icon, href: fragmentOf({ ...app.state, page: name }) })));
    bar.offer("operations", false);
    bar.addEventListener("choose", (event) => app.go({ page: /** @type {CustomEvent<ViewName>} */ (event).detail }));
  }

  /**
   * Show the view that a state names, as the state says.
   * @param {State} state
   */
  async show(state) {
    const name = known(state.page);
    const before = this.shown;
    this.shown = name;
    this.bar.mark(name);
    document.body.dataset.view = name;
    document.title = t("page.title", { view: VIEWS[name].title });
    if (before && before !== name) {
      const last = await this.opened.get(before);
      last?.view.hide();
      if (last) last.room.hidden = true;
    }
    const opened = await this.open(name).catch(async (error) => {
      await reloadIfUpgraded().catch(() => { /* there is no gateway */ });
      throw error;
    });
    const { view, room } = opened;
    if (this.shown !== name) return; // another one was chosen while this one was loaded
    room.hidden = false;
    view.show(state);
  }

  /** @param {ViewName} name */
  open(name) {
    let opening = this.opened.get(name);
    if (!opening) {
      opening = VIEWS[name].load().then((module) => {
        const room = document.createElement("div");
        room.className = `room ${name}`;
        room.hidden = true;
        this.rooms.append(room);
        return { view: module.open(this.app, room), room };
      });
      opening.catch(() => this.opened.delete(name)); // tried again when it is chosen again
      this.opened.set(name, opening);
    }
    return opening;
  }
}
