"""The map by area: what many devices look like from where a viewer looks; no sockets.

A viewer names a part of the map (`Area`). In each tick it gets binary frames of `gateway.viewers.
lens`: points, or counts where there are too many. Viewers with the same rights share a `Scene`, the
positions that these rights show; viewers of the same part of it share a lens and its frames. So a
hundred pages of one user cost hardly more than one, and a viewer that does not read costs nothing:
it misses ticks, and gets the whole picture when it reads again.

Rights are those of the stream of events: `visibility_of` says what is shown, and friends are shown
what `FriendFilter` makes of the newest fix. They are looked at when frames are taken, too.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gateway.friends.friend_filter import FriendFilter, told_at
from gateway.shares.share import Terms
from gateway.users.auth import Identity
from gateway.users.permissions import Visibility, friends_since, terms_of, visibility_of
from gateway.viewers.lens import (
    CELLS_MAX,
    LEVEL_MAX,
    POINTS_FROM,
    Lens,
    LevelCounts,
    SentNames,
    chosen_frame,
)
from gateway.viewers.viewers import Viewer
from gateway.views.live_positions import LivePositions, mercator
from gateway.views.location_view import LocationView
from waylog.bounding_box import BoundingBox
from waylog.malformed import MALFORMED

#: Seconds between two ticks, and ticks between two counts.
TICK_S: Final = 0.25
COUNT_TICKS: Final = 4
#: Devices that a viewer may name, to be shown wherever they are.
CHOSEN_MAX: Final = 100
#: Ticks for which positions are kept when nobody looks: pages are loaded again.
_LINGER_TICKS: Final = 40
_ZOOM_MAX: Final = 24
#: A cell is 64 to 128 pixels wide on a map with tiles of 512 pixels.
_CELLS_A_TILE_LEVELS: Final = 3
#: Devices examined in one step.
_STEP_RECORDS: Final = 500
_STEP_TOLD: Final = 50
_STEP_LENSES: Final = 8
#: Numbers of devices that are gone, beside as many of those that are there; then all begin anew.
_GONE_MAX: Final = 10_000


class Area(NamedTuple):
    """A rectangle of cells of the Web Mercator map: tiles of zoom `level`, eastwards from x."""

    level: int
    x: int
    y: int
    columns: int
    lines: int

    @classmethod
    def of(cls, box: BoundingBox, zoom: float) -> Area:
        """Return the cells that a box touches at a zoom of a map. Raises ValueError.

        Where they were too many, the cells are larger.
        """
        if not 0 <= zoom <= _ZOOM_MAX:
            raise ValueError(f"zoom is a number from 0 to {_ZOOM_MAX}")
        level = min(math.floor(zoom) + _CELLS_A_TILE_LEVELS, LEVEL_MAX)
        while (area := cls._at(level, box)).columns * area.lines > CELLS_MAX:
            level -= 1
        return area

    @classmethod
    def _at(cls, level: int, box: BoundingBox) -> Area:
        shift, width = 32 - level, 1 << level
        west, north = (each >> shift for each in mercator(box.north, box.west))
        east, south = (each >> shift for each in mercator(box.south, box.east))
        columns = (east - west) % width + 1
        degrees = box.east - box.west + (360 if box.west > box.east else 0)
        if degrees >= 360 or (degrees > 180 and columns <= width // 2):
            west, columns = 0, width  # both ends are in one cell
        return cls(level, west, north, columns, south - north + 1)


class _Sight(NamedTuple):
    """What a viewer is shown of a friend: since when, how precisely, and until when (ms)."""

    user: str
    since: int
    terms: Terms
    until: int | None


class _Rights(NamedTuple):
    """What decides what a viewer is shown; `user` is None if that is everything."""

    user: str | None
    device: str | None = None
    friends: frozenset[_Sight] = frozenset()


class _Scene:
    """The positions that viewers with the same rights are shown."""

    def __init__(
        self, rights: _Rights, identity: Identity, positions: LivePositions, points_from: int
    ) -> None:
        self._points_from = points_from
        self.rights = rights
        self.identity = identity
        self.positions = positions
        self.viewers: set[AreaViewer] = set()
        self.lenses: dict[Area, Lens] = {}
        self._looking: Counter[Area] = Counter()
        self.homes: tuple[int, bool] | None = None

    @property
    def users(self) -> frozenset[str]:
        """The users whose devices are shown, unless all are."""
        assert self.rights.user is not None
        return frozenset((self.rights.user, *(each.user for each in self.rights.friends)))

    @property
    def wholly(self) -> str | None:
        """The user all of whose devices are shown as they are, if there is one."""
        return self.rights.user if self.rights.device is None else None

    def enter(self, viewer: AreaViewer, area: Area) -> Lens:
        """Return the lens of an area, which a viewer looks at from now on."""
        self.viewers.add(viewer)
        self._looking[area] += 1
        lens = self.lenses.get(area)
        if lens is None:
            lens = self.lenses[area] = Lens(*area, self._points_from)
        return lens

    def leave(self, viewer: AreaViewer, area: Area) -> None:
        """Forget a viewer, and the lens that nobody else looks at."""
        self.viewers.discard(viewer)
        self._looking[area] -= 1
        if not self._looking[area]:
            del self._looking[area], self.lenses[area]


class AreaViewer:
    """One connection that looks at an area."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self._area: Area | None = None
        self._devices: tuple[str, ...] = ()
        self._own_only = False
        #: The identity for which `scene` was found; another one has other rights.
        self._identity: Identity | None = None
        self._scene: _Scene | None = None
        self._lens: Lens | None = None
        #: The area of `lens`.
        self._place: Area | None = None
        self._seen = -1
        self._names = SentNames()
        self._chosen_news = False
        #: How many of the chosen devices were there when they were told; one may be erased.
        self._known = 0
        #: The client has been told positions of chosen devices.
        self._has_chosen = False
        self._changed = False

    def look_at(
        self, area: Area | None, devices: Iterable[str] = (), own_only: bool = False
    ) -> None:
        """Change what is looked at, from the next tick on; None ends it.

        `devices` are shown wherever they are, as far as the rights go.
        """
        self._area, self._own_only = area, own_only
        self._devices = tuple(dict.fromkeys(devices))[:CHOSEN_MAX]
        self._changed = True

    def has_news(self) -> bool:
        """Tell whether there is something to take."""
        lens = self._lens
        return self._chosen_news or (lens is not None and lens.version not in (0, self._seen))

    def take(self, now: int) -> list[bytes]:
        """Return the frames that are news to this viewer; `now` is in ms.

        A viewer that has seen the picture before this one gets the changes, any other the whole.
        """
        scene, lens = self._scene, self._lens
        if scene is None or self.viewer.identity is not self._identity or self._changed:
            return []
        frames: list[bytes] = []
        positions = scene.positions
        if lens is not None and lens.version not in (0, self._seen):
            delta = lens.delta if self._seen == lens.version - 1 else None
            frames.append(lens.whole(positions, now) if delta is None else delta)
            self._seen = lens.version
        if self._chosen_news:
            self._chosen_news, self._has_chosen = False, bool(self._devices)
            self._known = sum(device in positions for device in self._devices)
            frames.append(chosen_frame(positions, self._devices, now))
        told: list[bytes] = []
        for frame in frames:
            names = self._names.frame(positions, frame, now)
            if names is not None:
                told.append(names)
            told.append(frame)
        return told


class AreaViews:
    """All viewers by area of this process."""

    def __init__(
        self,
        locations: LocationView,
        friend_filter: FriendFilter,
        points_from: int = POINTS_FROM,
    ) -> None:
        """`points_from` is the number of devices up to which a lens changes to points."""
        self._points_from = points_from
        self._locations = locations
        self._filter = friend_filter
        self._viewers: set[AreaViewer] = set()
        #: The newest positions as they are, for those who may see them, and to notice what moves.
        self._exact: LivePositions | None = None
        self._scenes: dict[_Rights, _Scene] = {}
        #: Devices whose newest positions are to be read, and scenes that are to be filled.
        self._unread: deque[Iterable[str]] = deque()
        self._unfilled: deque[_Scene] = deque()
        self._ticks = 0
        self._idle_ticks = 0

    def __len__(self) -> int:
        return len(self._viewers)

    def add(self, viewer: Viewer) -> AreaViewer:
        """Add a viewer, which looks at nothing yet."""
        area_viewer = AreaViewer(viewer)
        self._viewers.add(area_viewer)
        return area_viewer

    def remove(self, viewer: AreaViewer) -> None:
        """Remove a viewer whose connection has ended."""
        self._viewers.discard(viewer)
        self._leave(viewer)

    def steps(self, now: int) -> Iterator[None]:
        """Do the work of a tick, `now` in ms, in steps that are short; then wake who has news."""
        if not self._viewers:
            self._idle_ticks += 1
            if self._exact is not None and self._idle_ticks > _LINGER_TICKS:
                self._forget()
            return
        self._idle_ticks = 0
        self._ticks += 1
        exact = self._exact
        if exact is not None and exact.count > 2 * len(exact) + _GONE_MAX:
            self._forget()
        for viewer in list(self._viewers):
            if viewer._changed or viewer._identity is not viewer.viewer.identity:
                self._enter(viewer)
        yield from self._read()
        if self._exact is None:
            return
        self._exact.begin_tick()
        yield from self._tell_scenes(self._exact)
        for scene in list(self._scenes.values()):
            yield from self._refresh(scene, now)

    # --- who looks at what ------------------------------------------------------------------------

    def _forget(self) -> None:
        self._exact = self._locations.followed = None
        self._scenes.clear()
        self._unread.clear()
        self._unfilled.clear()
        for viewer in self._viewers:
            viewer._scene = viewer._lens = viewer._place = None
            viewer._changed = True

    def _leave(self, viewer: AreaViewer) -> None:
        scene, place = viewer._scene, viewer._place
        viewer._scene = viewer._lens = viewer._place = None
        if scene is None or place is None:
            return
        scene.leave(viewer, place)
        if not scene.viewers and scene.rights.user is not None:
            self._scenes.pop(scene.rights, None)

    def _enter(self, viewer: AreaViewer) -> None:
        """Give a viewer the scene and the lens of its rights and wishes."""
        identity = viewer.viewer.identity
        area = viewer._area
        rights = _rights_of(identity, viewer._own_only)
        before = viewer._scene
        scene = None if area is None else self._scene_of(rights, identity)
        self._leave(viewer)
        viewer._identity, viewer._changed = identity, False
        if scene is None or area is None:
            return
        if scene is not before:
            viewer._names = SentNames()
        self._scenes[rights] = scene  # it was left alone for a moment, if this was its last viewer
        viewer._scene, viewer._place, viewer._seen = scene, area, -1
        viewer._lens = scene.enter(viewer, area)
        viewer._chosen_news = bool(viewer._devices) or viewer._has_chosen

    def _scene_of(self, rights: _Rights, identity: Identity) -> _Scene:
        scene = self._scenes.get(rights)
        if scene is not None:
            return scene
        exact = self._exact
        if exact is None:
            exact = self._exact = self._locations.followed = LivePositions()
        if rights.user is None:
            if not exact.follows_all:
                exact.follow(None)
                self._unread.append(list(self._locations.newest))
            scene = _Scene(rights, identity, exact, self._points_from)
        else:
            scene = _Scene(rights, identity, LivePositions(), self._points_from)
            scene.positions.follow(None)
            if not exact.follows_all:
                exact.follow(scene.users)
                self._unread.extend(self._locations.devices(user) for user in scene.users)
            self._unfilled.append(scene)
        self._scenes[rights] = scene
        return scene

    # --- positions --------------------------------------------------------------------------------

    def _read(self) -> Iterator[None]:
        """Read newest positions, and fill scenes with them."""
        while self._unread:
            for number, device in enumerate(self._unread.popleft(), 1):
                self._locations.follow_newest(device)
                if not number % _STEP_RECORDS:
                    yield
        while self._unfilled:
            scene = self._unfilled.popleft()
            scene.homes = self._homes()
            yield from self._show_users(scene, scene.users)

    def _homes(self) -> tuple[int, bool]:
        return self._filter.version, self._filter.ready

    def _show_users(self, scene: _Scene, users: Iterable[str]) -> Iterator[None]:
        for user in users:
            for number, device in enumerate(self._locations.devices(user), 1):
                self._show(scene, device)
                if not number % _STEP_TOLD:
                    yield

    def _tell_scenes(self, exact: LivePositions) -> Iterator[None]:
        """Show what has moved to those who see it in a form of their own."""
        scenes = [each for each in self._scenes.values() if each.rights.user is not None]
        if not scenes:
            return
        # What is shown as it is needs no look at the device.
        moved = exact.moved_of(
            frozenset().union(*(scene.users - {scene.wholly} for scene in scenes))
        )
        for scene in scenes:
            homes = self._homes()
            if scene.homes != homes:
                # A home that was found now hides positions that were shown before.
                scene.homes = homes
                yield from self._show_users(scene, [each.user for each in scene.rights.friends])
            if scene.wholly is not None:
                scene.positions.copy_moved(exact, scene.wholly)
                yield
            for user in scene.users & moved.keys() - {scene.wholly}:
                for number, device in enumerate(moved[user], 1):
                    self._show(scene, device)
                    if not number % _STEP_TOLD:
                        yield
            scene.positions.begin_tick()

    def _show(self, scene: _Scene, device: str) -> None:
        """Put a device's newest position into a scene, as its rights show it."""
        assert self._exact is not None
        identity, positions = scene.identity, scene.positions
        sight = visibility_of(identity, device)
        if sight is Visibility.EVERYTHING:
            positions.copy(device, self._exact)
            return
        fix = None
        if sight is Visibility.TOLD and device in self._exact:
            owner = device.partition("/")[0]
            since = friends_since(identity, owner) or 0
            try:
                fix = self._locations.latest(device)
            except MALFORMED:
                fix = None
            if fix is not None:
                terms = terms_of(identity, owner)
                fix = self._filter.fix(fix, terms) if told_at(fix) >= since else None
        if fix is None:
            positions.remove(device)
            return
        positions.put(
            *(device, fix.time, fix.received, fix.lat, fix.lon),
            *(fix.speed, fix.course, fix.accuracy),
        )

    # --- frames -----------------------------------------------------------------------------------

    def _refresh(self, scene: _Scene, now: int) -> Iterator[None]:
        positions = scene.positions
        counting = self._ticks % COUNT_TICKS == 0
        counts: dict[int, LevelCounts] = {}
        for number, lens in enumerate(list(scene.lenses.values()), 1):
            of_level = None
            if counting and lens.version and not lens.has_points:
                of_level = counts.get(lens.level)
                if of_level is None:
                    of_level = counts[lens.level] = LevelCounts(positions, lens.level, now)
                    yield
            lens.refresh(positions, of_level, now)
            if not number % _STEP_LENSES:
                yield
        for viewer in scene.viewers:
            if viewer._devices and (
                positions.has_moved(viewer._devices)
                or viewer._known != sum(device in positions for device in viewer._devices)
            ):
                viewer._chosen_news = True
            if viewer.has_news():
                viewer.viewer.wake.set()


def _rights_of(identity: Identity, own_only: bool) -> _Rights:
    if identity.admin and identity.device is None and not own_only:
        return _Rights(None)
    rights = identity.rights
    friends = () if own_only else rights.friends.items()
    sights = (
        _Sight(user, since, rights.terms_for(user), rights.ends.get(user))
        for user, since in friends
    )
    return _Rights(identity.user, identity.device, frozenset(sights))
