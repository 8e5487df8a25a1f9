"""The terminal, by textual: keys in, lines out. The only module that imports textual.

What is drawn comes from `lines`; only lines that changed are sent to the terminal. The mouse is left to the
terminal, so that text can be selected, and colours are the terminal's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from kwsniff.live.screen import view as lines
from kwsniff.live.screen.lastminute import Figures, Snapshot
from kwsniff.live.screen.screenrows import GROUPINGS
from kwsniff.live.screen.state import CALLS, HELP, KEYS, ROWS, SORTS, State

OWN = ("tab", "shift+tab")
MAX_FILTER = 100
"""Characters of a filter."""


class Fresh(Message):
    """There is a newer snapshot, or none will come."""


class Face(Widget):
    """Lines of text."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.strips: list[Strip] = []
        """What is shown."""

    def show(self, texts: list[Text]) -> None:
        """Show `texts`; lines that are the same as before stay."""
        width, console = self.size.width, self.app.console
        before, self.strips = self.strips, [Strip(text.render(console)) for text in texts]
        for place in range(max(len(before), len(texts))):
            if before[place : place + 1] != self.strips[place : place + 1]:
                self.refresh(Region(0, place, width, 1))

    def render_line(self, y: int) -> Strip:
        strip = self.strips[y] if y < len(self.strips) else Strip([])
        return strip.adjust_cell_length(self.size.width)


class Output:
    """The terminal to write to, which may go away without a signal. Textual would wait for it for ever."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> None:
        self._try(self._file.write, text)

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, do: Callable[..., Any], *given: str) -> None:
        try:
            do(*given)
        except OSError:
            self.gone = True


class Driver(LinuxDriver):
    """Textual's, with an output that may fail."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._file: Any = Output(self._file)

    @property
    def gone(self) -> bool:
        return bool(self._file.gone)


class LiveApp(App[None]):
    """Shows snapshots until it is left or closed."""

    CSS = """
    Screen { layout: vertical; }
    #face { width: 100%; height: 1fr; }
    #keys { width: 100%; height: 1; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    #filter.asked { display: block; }
    #keys.hidden { display: none; }
    """
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        # Textual has a use of its own for some keys: to move between widgets, and to scroll.
        *(Binding(key.keys, key.action, show=False, priority=key.keys in OWN) for key in KEYS),
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
    ]

    def __init__(
        self, title: str, latest: Callable[[], Snapshot | None], leave: Callable[[], None], zone: tzinfo = UTC
    ) -> None:
        """`latest` gives the newest snapshot, None when the session is over; `leave` is called when the user
        quits."""
        super().__init__(ansi_color=True, driver_class=Driver)
        self.theme = "ansi-dark"
        self.state = State(zone=zone)
        self.failure: Exception | None = None
        """What drawing failed with."""
        self._title = title
        self._latest = latest
        self._leave = leave
        self._shown = Snapshot()
        self._drawable = False

    def compose(self) -> ComposeResult:
        """The lines, the line of keys, and the filter that takes its place."""
        yield Face("face")
        yield Face("keys")
        asks = "show names that contain ...   Enter keep   Esc all names"
        yield Input(id="filter", placeholder=asks, max_length=MAX_FILTER, disabled=True)

    def on_mount(self) -> None:
        """Show what there is already; the session may even be over."""
        self._drawable = True
        self.call_after_refresh(self.draw)

    def on_fresh(self) -> None:
        self.draw()

    def on_resize(self, _: Resize) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show what is to be shown now; a failure ends the app, for nobody would see it here."""
        if not self._drawable:
            return
        try:
            self._draw()
        except Exception as error:
            self.failure = error
            self.exit()

    def _draw(self) -> None:
        latest = self._latest()
        if latest is None:
            self.exit()
            return
        if getattr(self._driver, "gone", False):
            self.action_leave()
            return
        if not self.state.paused:
            self._shown = latest
        # What the capture loses is no matter to be paused.
        shown = replace(self._shown, vitals=latest.vitals)
        face, keys = self.query_one("#face", Face), self.query_one("#keys", Face)
        width, height = self.size.width, self.size.height - 1
        face.show(lines.screen(shown, self.state, self._title, width, height))
        keys.show([lines.footer(self.state, width)])

    # Keys

    def action_group(self, name: str) -> None:
        self.state.show_group(name)
        self.draw()

    def action_next_group(self, by: int) -> None:
        place = GROUPINGS.index(self.state.grouping) + by
        self.action_group(GROUPINGS[place % len(GROUPINGS)])

    def action_sort(self, name: str) -> None:
        self.state.sort, self.state.top = name, 0
        self.state.selected = None
        self.draw()

    def action_next_sort(self) -> None:
        names = list(SORTS)
        self.action_sort(names[(names.index(self.state.sort) + 1) % len(names)])

    def action_move(self, by: int) -> None:
        """Select another row, or scroll."""
        if self.state.view == ROWS:
            if self._figures is not None:
                self.state.move(self._figures, by)
        else:
            self.state.scroll = max(self.state.scroll + by, 0)
        self.draw()

    def action_page(self, by: int) -> None:
        """The same, by most of a screen."""
        self.action_move(by * max(self.size.height - 12, 1))

    def action_calls(self) -> None:
        """Show the last calls of the selected row, which stays selected whatever comes."""
        if self.state.view == ROWS and self._figures is not None:
            self.state.move(self._figures, 0)
            self._view(CALLS)

    def action_help(self) -> None:
        """Show what the keys do, or no longer."""
        self._view(ROWS if self.state.view == HELP else HELP)

    def action_out(self) -> None:
        """To the rows; there: to all of them."""
        if self.state.view == ROWS:
            self.state.text, self.state.selected, self.state.top = "", None, 0
            self._ask(False)
        self._view(ROWS)

    def action_pause(self) -> None:
        self.state.paused = not self.state.paused
        self.draw()

    def action_leave(self) -> None:
        self._leave()
        self.exit()

    def _view(self, view: str) -> None:
        self.state.view, self.state.scroll = view, 0
        self.draw()

    @property
    def _figures(self) -> Figures | None:
        return self._shown.groups[self.state.grouping] if self._shown.groups else None

    # Filter

    def action_filter(self) -> None:
        self._view(ROWS)
        self._ask(True)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Each letter counts at once."""
        self.state.text, self.state.selected, self.state.top = event.value, None, 0
        self.draw()

    def on_input_submitted(self) -> None:
        self._ask(False)

    def _ask(self, asked: bool) -> None:
        asking = self.query_one("#filter", Input)
        asking.set_class(asked, "asked")
        asking.disabled = not asked
        self.query_one("#keys").set_class(asked, "hidden")
        if asked:
            asking.value = self.state.text
            asking.focus()
        else:
            self.set_focus(None)
        self.draw()
