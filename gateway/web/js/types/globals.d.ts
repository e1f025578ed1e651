import type * as maplibre from "maplibre-gl";
import type { ExportPanel } from "../data/export_panel.js";
import type { ForwardingForm } from "../data/forwarding_form.js";
import type { ForwardingPanel } from "../data/forwarding_panel.js";
import type { ImportPanel } from "../data/import_panel.js";
import type { AppSetup } from "../devices/app_setup.js";
import type { BatteryCourse } from "../devices/battery_course.js";
import type { DeviceNotices } from "../devices/device_notices.js";
import type { DayPlayer } from "../diary/day_player.js";
import type { DayTimeline } from "../diary/day_timeline.js";
import type { MonthCalendar } from "../diary/month_calendar.js";
import type { TravelStatistics } from "../diary/travel_statistics.js";
import type { AlertToasts } from "../elements/alert_toasts.js";
import type { ChosenDevices } from "../elements/chosen_devices.js";
import type { ConnectionDot } from "../elements/connection_dot.js";
import type { DeviceList } from "../elements/device_list.js";
import type { DevicePanel } from "../elements/device_panel.js";
import type { MapNotice } from "../elements/map_notice.js";
import type { NavigationBar } from "../elements/navigation_bar.js";
import type { OfflineNotice } from "../elements/offline_notice.js";
import type { PersonList } from "../live/person_list.js";
import type { PipelineStrip } from "../elements/pipeline_strip.js";
import type { PlaceDetails } from "../elements/place_details.js";
import type { PlaceSearch } from "../elements/place_search.js";
import type { SettingsDialog } from "../elements/settings_dialog.js";
import type { SignIn } from "../elements/sign_in.js";
import type { StartGuide } from "../elements/start_guide.js";
import type { OwnAccountPanel } from "../people/account_panel.js";
import type { FriendPanel } from "../people/friend_panel.js";
import type { UserPanel } from "../people/user_panel.js";
import type { SharePanel } from "../people/share_panel.js";
import type { SvgIcon } from "../elements/svg_icon.js";
import type { PlaceList } from "../places/place_list.js";
import type { AlertSettings } from "../zones/alert_settings.js";
import type { ZoneEditor } from "../zones/zone_editor.js";
import type { ZoneList } from "../zones/zone_list.js";

declare global {
  /** A classic script of the page; see gateway/web/vendor.py. */
  var maplibregl: typeof maplibre;
  /** A classic script of the page /docs. */
  var SwaggerUIBundle: (options: Record<string, unknown>) => unknown;
  /** What tests look at and call. */
  var waylog: Record<string, unknown>;

  interface HTMLElementTagNameMap {
    "alert-settings": AlertSettings;
    "alert-toasts": AlertToasts;
    "app-setup": AppSetup;
    "battery-course": BatteryCourse;
    "chosen-devices": ChosenDevices;
    "connection-dot": ConnectionDot;
    "day-player": DayPlayer;
    "day-timeline": DayTimeline;
    "device-list": DeviceList;
    "device-notices": DeviceNotices;
    "device-panel": DevicePanel;
    "map-notice": MapNotice;
    "month-calendar": MonthCalendar;
    "navigation-bar": NavigationBar;
    "offline-notice": OfflineNotice;
    "person-list": PersonList;
    "pipeline-strip": PipelineStrip;
    "place-details": PlaceDetails;
    "place-list": PlaceList;
    "place-search": PlaceSearch;
    "settings-dialog": SettingsDialog;
    "sign-in": SignIn;
    "start-guide": StartGuide;
    "account-panel": OwnAccountPanel;
    "export-panel": ExportPanel;
    "forwarding-form": ForwardingForm;
    "forwarding-panel": ForwardingPanel;
    "friend-panel": FriendPanel;
    "import-panel": ImportPanel;
    "share-panel": SharePanel;
    "svg-icon": SvgIcon;
    "user-panel": UserPanel;
    "travel-statistics": TravelStatistics;
    "zone-editor": ZoneEditor;
    "zone-list": ZoneList;
  }
}
